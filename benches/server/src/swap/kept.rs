//! Where states lie, for the coordinator and for its ranks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay::ObjectStates;
use forebay::trainer::process_group::{LocalLauncher, Observer, serve_local_rank};
use forebay::trainer::states::{FileStates, States};
use forebay_benches::Outcome;
use forebay_client::{Client, ConnectOptions};
use forebay_server::Server;
use forebay_store::{HostFolder, ObjectOptions, Options, Store};

use super::model::{BenchRecipe, config};

const SIZE: &str = "FOREBAY_SWAP_SIZE";
/// The folder of states that are files, or the address of the store that they are objects of.
const FOLDER: &str = "FOREBAY_SWAP_FOLDER";
const STORE: &str = "FOREBAY_SWAP_STORE";

/// States in shared memory; gone with this.
pub(super) struct Kept {
    states: Arc<dyn States>,
    address: Option<String>,
    folder: tempfile::TempDir,
    _server: Option<Server>,
}

impl Kept {
    pub(super) fn new(are_objects: bool) -> Outcome<Self> {
        let shared = Path::new("/dev/shm");
        let parent: PathBuf = if shared.is_dir() { shared.into() } else { std::env::temp_dir() };
        let folder = tempfile::tempdir_in(parent)?;
        if !are_objects {
            let states = Arc::new(FileStates::open(folder.path().join("states"))?);
            return Ok(Kept { states, address: None, folder, _server: None });
        }
        let host = HostFolder::At(folder.path().join("host"));
        let objects = ObjectOptions::default().host_folder(host).pageable_bytes_max(0);
        let store = Store::open(folder.path().join("store"), Options::default().objects(objects))?;
        let socket = folder.path().join("grpc.sock");
        let server = Server::builder().grpc_socket(&socket).bind_without_http(store.clone())?;
        let states = Arc::new(ObjectStates::new(Client::embedded(store).objects()));
        let address = Some(format!("unix://{}", socket.display()));
        Ok(Kept { states, address, folder, _server: Some(server) })
    }

    pub(super) fn states(&self) -> Arc<dyn States> {
        Arc::clone(&self.states)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Tells ranks where the states are, and what they train.
    pub(super) fn tell(&self, launcher: LocalLauncher, size: &str) -> LocalLauncher {
        let launcher = launcher.variable(SIZE, size);
        match &self.address {
            Some(address) => launcher.variable(STORE, address),
            None => launcher.variable(FOLDER, self.folder().join("states")),
        }
    }
}

/// Serves if this process is a rank: true then, once it was told to end.
///
/// # Errors
/// When the states or the coordinator cannot be reached.
pub fn serve_rank() -> Outcome<bool> {
    let mut recipe = BenchRecipe(config(&std::env::var(SIZE).unwrap_or_default()));
    if let Ok(address) = std::env::var(STORE) {
        let objects = Client::connect(&address, &ConnectOptions::default())?.objects();
        return Ok(serve_local_rank(&ObjectStates::new(objects), &mut recipe, &Observer::default())?);
    }
    let Some(folder) = std::env::var_os(FOLDER) else { return Ok(false) };
    Ok(serve_local_rank(&FileStates::open(folder)?, &mut recipe, &Observer::default())?)
}
