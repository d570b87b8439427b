//! A version that is held, and its bytes.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, Weak};

use forebay_store::{Cause, Manifest, ObjectBytes, ObjectMapping, Tensor};

use super::calls::LeasedObject;
use crate::client::Client;
use crate::connection::Connection;
use crate::error::Result;
use crate::remote::check_process;

/// Lets go of a version when nobody has it any more: neither the [`HeldObject`] nor any of its [`LeasedBytes`].
struct Lease {
    /// Whatever it is, what it held is over when it is gone.
    connection: Weak<dyn Connection>,
    number: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.objects().release(self.number);
        }
    }
}

/// A version of an object. As long as it is held its bytes stay where they are, whatever else happens to the key.
pub struct HeldObject {
    client: Client,
    process: u32,
    manifest: Arc<Manifest>,
    // Before the lease: they are of use only while it is there.
    bytes: Vec<Option<ObjectBytes>>,
    lease: Arc<Lease>,
}

/// The bytes of a tensor or a memory class where they lie. They stay as long as this is there, also when the [`HeldObject`] or
/// the client is gone.
#[derive(Clone)]
pub struct LeasedBytes {
    bytes: ObjectBytes,
    range: Range<u64>,
    _lease: Arc<Lease>,
}

impl LeasedBytes {
    /// Where the first lies. Nobody may write there, and whoever reads keeps this for as long.
    pub fn address(&self) -> usize {
        self.bytes.address() + self.range.start as usize
    }

    /// The mapping that they lie in, and where in it the first lies; nothing where that is no shared memory.
    pub fn mapping(&self) -> Option<(ObjectMapping, usize)> {
        let (mapping, start) = self.bytes.mapping()?;
        Some((mapping, start + self.range.start as usize))
    }

    /// How many there are.
    pub fn length(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }
}

impl fmt::Debug for LeasedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeasedBytes({} bytes)", self.length())
    }
}

/// One tensor of a held version, or some of its rows.
#[derive(Clone, Debug)]
pub struct HeldTensor<'a> {
    held: &'a HeldObject,
    tensor: &'a Tensor,
    /// In its payload.
    range: Range<u64>,
}

impl HeldObject {
    pub(super) fn new(client: &Client, leased: LeasedObject) -> Self {
        let LeasedObject { lease, manifest, bytes } = leased;
        let lease = Arc::new(Lease { connection: Arc::downgrade(&client.connection), number: lease });
        HeldObject { client: client.clone(), process: std::process::id(), manifest, bytes, lease }
    }

    /// What is known of it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.manifest.key
    }

    /// Its number.
    pub fn version(&self) -> u64 {
        self.manifest.version
    }

    /// One tensor.
    ///
    /// # Errors
    /// `input` with the nearest name when there is none of that name.
    pub fn tensor(&self, name: &str) -> Result<HeldTensor<'_>> {
        let tensor = self.manifest.layout.tensor(name)?;
        Ok(HeldTensor { held: self, tensor, range: tensor.range() })
    }

    /// Fills `buffer` with the bytes of a memory class from byte `offset` of its payload on.
    ///
    /// # Errors
    /// `input` when there are fewer; `corrupt` when they are damaged on their way; `retry` when the server cannot be reached.
    pub fn read_class(&self, class: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let payload = self.manifest.layout.payload(class)?;
        let limit = self.manifest.layout.payloads()[payload].bytes;
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > limit) {
            let found = format!("{} bytes at {offset}", buffer.len());
            let cause = Cause::TensorLength { tensor: class.to_owned(), found, limit };
            return Err(forebay_store::Error::from(cause).into());
        }
        self.read(payload, offset, buffer)
    }

    fn read(&self, payload: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_process(self.process)?; // mappings are not inherited
        match &self.bytes[payload] {
            Some(bytes) => {
                bytes.read(offset, buffer);
                Ok(())
            }
            None => self.client.connection.objects().read(self.lease.number, payload, offset, buffer),
        }
    }

    /// Holds every byte against its checksum where it lies now, in memory or on disk: what is got where it lies is not looked at.
    ///
    /// # Errors
    /// `corrupt` with key, version, chunk and tensors where they are others than were set; `retry` when the server cannot be reached.
    pub fn verify(&self) -> Result<()> {
        check_process(self.process)?; // mappings are not inherited
        self.client.connection.objects().verify(self.lease.number)
    }

    /// The bytes of a memory class where they lie; `None` where they have to be read: on disk, or behind a connection.
    ///
    /// # Errors
    /// `input` with the nearest name when there is no such class.
    pub fn bytes(&self, class: &str) -> Result<Option<LeasedBytes>> {
        let payload = self.manifest.layout.payload(class)?;
        Ok(self.bytes_of(payload, 0..self.manifest.layout.payloads()[payload].bytes))
    }

    fn bytes_of(&self, payload: usize, range: Range<u64>) -> Option<LeasedBytes> {
        let bytes = self.bytes[payload].clone()?;
        Some(LeasedBytes { bytes, range, _lease: self.lease.clone() })
    }
}

impl fmt::Debug for HeldObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldObject({} version {})", self.key(), self.version())
    }
}

impl<'a> HeldTensor<'a> {
    /// What the whole tensor is.
    pub fn tensor(&self) -> &'a Tensor {
        self.tensor
    }

    /// How many bytes there are.
    pub fn bytes_count(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Some of the rows (indices of the first dimension), for readers that take a part each.
    ///
    /// # Errors
    /// `input` when there are fewer.
    pub fn rows(&self, rows: Range<u64>) -> Result<HeldTensor<'a>> {
        let there = self.tensor.shape.first().copied().unwrap_or(1);
        if rows.start > rows.end || rows.end > there {
            let reason = format!("{:?} has {there} rows, {rows:?} are asked for", self.tensor.name);
            return Err(forebay_store::Error::from(Cause::Argument { what: "rows", reason }).into());
        }
        let row_bytes = self.tensor.row_bytes();
        let (start, end) = (rows.start * row_bytes, rows.end * row_bytes);
        let range = self.tensor.offset + start..self.tensor.offset + end;
        Ok(HeldTensor { range, ..*self })
    }

    /// Fills a buffer of exactly as many bytes as there are.
    ///
    /// # Errors
    /// `input` when it has another length; as [`HeldObject::read_class`].
    pub fn read(&self, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() as u64 != self.bytes_count() {
            let found = format!("a buffer of {} bytes", buffer.len());
            let (tensor, limit) = (self.tensor.name.clone(), self.bytes_count());
            return Err(forebay_store::Error::from(Cause::TensorLength { tensor, found, limit }).into());
        }
        self.held.read(self.tensor.payload, self.range.start, buffer)
    }

    /// The bytes in memory of the caller's own.
    ///
    /// # Errors
    /// As [`HeldObject::read_class`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut buffer = vec![0; self.bytes_count() as usize];
        self.read(&mut buffer)?;
        Ok(buffer)
    }

    /// The bytes where they lie; `None` where they have to be read.
    pub fn bytes(&self) -> Option<LeasedBytes> {
        self.held.bytes_of(self.tensor.payload, self.range.clone())
    }
}

/// What was published and is being received. Nobody else receives it meanwhile; dropping it without [`done`](Self::done) gives
/// it back, for the next.
#[derive(Debug)]
pub struct ReceivedObject(pub(super) HeldObject);

impl ReceivedObject {
    /// It has been taken over: it is removed.
    ///
    /// # Errors
    /// `closed` when the store is.
    pub fn done(self) -> Result<()> {
        self.0.client.connection.objects().done(self.0.lease.number)
    }
}

impl Deref for ReceivedObject {
    type Target = HeldObject;

    fn deref(&self) -> &HeldObject {
        &self.0
    }
}
