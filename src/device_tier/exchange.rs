//! One state leaves a device while another takes its place.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::MutexGuard;

use super::inward::Inward;
use super::lanes::Lane;
use super::outward::Outward;
use super::part::{self, Extent};
use super::{DevicePartMut, DeviceTier, DeviceTierError, Shared, shared};
use crate::client::GetObject;
use crate::store::{Expected, Layout, Which};
use crate::trainer::device::Copies;

/// What an exchange did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceExchange {
    /// The version that the old state was set as.
    pub set: u64,
    /// The version that is on the device now.
    pub got: u64,
}

impl<D: Copies> DeviceTier<D> {
    /// One state out, another in, through the same device memory and at the same time. The two need not have the same layout; what
    /// is longer of a class says how much of a part's buffer is used.
    ///
    /// # Errors
    /// As [`set`](Self::set) and [`get`](Self::get), when nothing has been moved yet. From then on the old state comes first: when the
    /// new one cannot be had, the old one is committed and [`DeviceTierError::Exchanged`] names its version; what the parts hold is
    /// undefined then. [`DeviceTierError::Uncommitted`] when the old one could be filled and not committed. When it could not be filled,
    /// for the device or the connection to the store has failed, it is partly overwritten and
    /// [`DeviceTierError::Overwritten`] says why.
    pub fn exchange(
        &self,
        out: (&str, Expected, &Layout),
        into: (&str, Which),
        parts: &mut [DevicePartMut<'_, D>],
    ) -> Result<DeviceExchange, DeviceTierError> {
        let (key, expected, layout) = out;
        let named = parts.iter().map(|part| (part.class, self.device.length(part.buffer), part.offset));
        let leaving = part::extents(layout, named)?;
        let mut filling = self.objects.begin(key, expected, layout)?; // there is room before anything is waited for
        let held = self.objects.get_with(into.0, into.1, &GetObject::default())?;
        let coming = self.extents_of(&held, parts)?;
        let (buffers, [has_given, coming_failed]) = (shared(parts), [(); 2].map(|()| AtomicBool::new(false)));
        let pieces = self.pieces(&leaving).max(self.pieces(&coming));
        let moved = self.in_lanes(pieces, |[ring_out, ring_in], lane| {
            let mut outward = Outward::new(&self.device, ring_out, (&filling, &self.pins));
            let mut inward = Inward::new(&self.device, ring_in, (&held, &self.pins));
            let extents = (&leaving[..], &coming[..]);
            let came = swap(
                (&mut outward, &mut inward),
                &buffers,
                extents,
                (lane, self.piece_values, &coming_failed),
            );
            let settled = inward.finish();
            has_given.fetch_or(inward.has_given(), Ordering::Relaxed);
            came.and_then(|came| outward.finish().map(|()| came.and(settled)))
        });
        let moved = moved.map_err(|error| match has_given.into_inner() {
            true => DeviceTierError::Overwritten { source: Box::new(error) },
            false => error,
        })?;
        let got = moved.into_iter().collect::<Result<(), _>>().map(|()| held.version());
        match (filling.commit(), got) {
            (Ok(set), Ok(got)) => Ok(DeviceExchange { set, got }),
            (Ok(set), Err(error)) => {
                Err(DeviceTierError::Exchanged { key: key.to_owned(), set, source: Box::new(error) })
            }
            (Err(source), got) => {
                let (filling, got) = (Box::new(filling), got.map_err(Box::new));
                Err(DeviceTierError::Uncommitted { filling, got, source })
            }
        }
    }
}

/// Takes a lane's old values out piece by piece, and gives the new ones their place. `Ok(Err(_))` when it is the new ones that cannot be
/// had: the old ones have left then, all of them.
fn swap<D: Copies>(
    (outward, inward): (&mut Outward<'_, D>, &mut Inward<'_, D>),
    buffers: &[Shared<'_, D::Buffer>],
    (leaving, coming): (&[Extent], &[Extent]),
    (lane, piece_values, coming_failed): (Lane<'_>, usize, &AtomicBool),
) -> Result<Result<(), DeviceTierError>, DeviceTierError> {
    let mut came = Ok(());
    for (number, (buffer, (leaving, coming))) in buffers.iter().zip(leaving.iter().zip(coming)).enumerate() {
        let mut out = lane.share(number, leaving.pieces(piece_values));
        let mut back = lane.share(number, coming.pieces(piece_values));
        loop {
            let (gone, next) = (out.next(), back.next());
            if gone.is_none() && next.is_none() {
                break;
            }
            let read = || MutexGuard::map(buffer.lock(), |buffer| &mut **buffer);
            let left = gone.map(|piece| outward.take(read, leaving, piece)).transpose()?;
            if let Some(piece) = next.filter(|_| !coming_failed.load(Ordering::Relaxed)) {
                came = inward.give(buffer, coming, piece, left.as_ref());
                coming_failed.fetch_or(came.is_err(), Ordering::Relaxed);
            }
        }
    }
    Ok(came)
}
