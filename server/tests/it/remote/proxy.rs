//! A network that can be broken: bytes between a client and a server pass through here.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to bytes. Shared with the threads that carry them.
#[derive(Debug, Default)]
struct Weather {
    /// Connections are refused and those that are open are cut.
    down: AtomicBool,
    /// What the server says is swallowed.
    deaf: AtomicBool,
    /// How many bytes of the server's are let through before the connection is cut; none when it is not to be.
    cut_after: AtomicU64,
    /// The same of the client's.
    cut_after_sent: AtomicU64,
    /// How many bytes of the client's are let through before its half of the connection ends, and the server's goes on.
    end_after_sent: AtomicU64,
    /// How many bytes of the client's are let through before nothing more is read of it.
    stick_after_sent: AtomicU64,
    /// Whether it stays so; and how many connections are.
    stuck: Mutex<(bool, usize)>,
    unstuck: Condvar,
    open: Mutex<Vec<TcpStream>>,
    /// How many bytes came by, of both.
    carried: AtomicU64,
    /// The longest that bytes are on their way, in microseconds.
    delay: AtomicU64,
    /// How many were delayed, from which it follows for how long the next are.
    delayed: AtomicU64,
    /// Whether what a client says on connections to come reaches the server twice, each time on a connection of its own.
    twice: AtomicBool,
    /// How many bytes the server said to what came first, and to what came again.
    answered: AtomicU64,
    answered_again: AtomicU64,
}

/// A proxy on a port of its own, until the process ends.
pub(crate) struct Proxy {
    address: SocketAddr,
    weather: Arc<Weather>,
}

const NEVER: u64 = u64::MAX;

impl Proxy {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let weather = Arc::new(Weather {
            cut_after: AtomicU64::new(NEVER),
            cut_after_sent: AtomicU64::new(NEVER),
            end_after_sent: AtomicU64::new(NEVER),
            stick_after_sent: AtomicU64::new(NEVER),
            ..Weather::default()
        });
        let of = weather.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if of.down.load(Ordering::SeqCst) {
                    continue; // dropped, which cuts it
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                    of.open.lock().unwrap().push(stream.try_clone().unwrap());
                }
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let again = of.twice.load(Ordering::SeqCst).then(|| repeated(&server, &of));
                let weather = of.clone();
                thread::spawn(move || carry(up, server, again, &weather, false));
                let weather = of.clone();
                thread::spawn(move || carry(down, client, None, &weather, true));
            }
        });
        Proxy { address, weather }
    }

    pub(crate) fn address(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// How many bytes came by so far, both ways.
    pub(crate) fn carried(&self) -> u64 {
        self.weather.carried.load(Ordering::SeqCst)
    }

    /// Cuts every connection; others may come.
    pub(crate) fn cut(&self) {
        for stream in self.weather.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts every connection, and lets none come until it is up again.
    pub(crate) fn set_down(&self, down: bool) {
        self.weather.down.store(down, Ordering::SeqCst);
        if down {
            self.cut();
        }
    }

    /// Swallows what the server says from now on, and says nothing of it: a cable that is pulled.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.weather.deaf.store(deaf, Ordering::SeqCst);
    }

    /// Cuts the connection once the server has said so many bytes more.
    pub(crate) fn cut_after(&self, bytes: u64) {
        self.weather.cut_after.store(bytes, Ordering::SeqCst);
    }

    /// Cuts the connection once the client has said so many bytes more.
    pub(crate) fn cut_after_sent(&self, bytes: u64) {
        self.weather.cut_after_sent.store(bytes, Ordering::SeqCst);
    }

    /// Ends the client's half of the connection once it has said so many bytes more; the server may go on.
    pub(crate) fn end_after_sent(&self, bytes: u64) {
        self.weather.end_after_sent.store(bytes, Ordering::SeqCst);
    }

    /// Reads nothing more of a connection once its client has said so many bytes more.
    pub(crate) fn stick_after_sent(&self, bytes: u64) {
        self.weather.stuck.lock().unwrap().0 = true;
        self.weather.stick_after_sent.store(bytes, Ordering::SeqCst);
    }

    /// Whether a connection sticks.
    pub(crate) fn is_stuck(&self) -> bool {
        self.weather.stuck.lock().unwrap().1 > 0
    }

    /// Reads on.
    pub(crate) fn unstick(&self) {
        let mut stuck = self.weather.stuck.lock().unwrap();
        stuck.0 = false;
        self.weather.unstuck.notify_all();
        drop(self.weather.unstuck.wait_while(stuck, |stuck| stuck.1 > 0).unwrap());
    }

    /// From now on bytes are on their way for up to so long, some longer than others.
    pub(crate) fn set_delay(&self, most: Duration) {
        self.weather.delay.store(most.as_micros() as u64, Ordering::SeqCst);
    }

    /// What clients say on connections to come reaches the server twice. It is the first answer that they hear.
    pub(crate) fn set_twice(&self, twice: bool) {
        self.weather.twice.store(twice, Ordering::SeqCst);
    }

    /// How many bytes the server said to what came first, and to what came again.
    pub(crate) fn answered(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (read(&self.weather.answered), read(&self.weather.answered_again))
    }

    /// Whether a cut that was asked for has not come yet.
    pub(crate) fn is_cut_ahead(&self) -> bool {
        [&self.weather.cut_after, &self.weather.cut_after_sent, &self.weather.end_after_sent]
            .iter()
            .any(|after| after.load(Ordering::SeqCst) != NEVER)
    }
}

/// What the two ends say to each other beside calls (settings, pings) is shorter.
const WORDS_BYTES_MAX: usize = 256;

/// Takes so many bytes off a count; whether that was the end of it.
fn is_reached(count: &AtomicU64, bytes: usize) -> bool {
    let left = count.load(Ordering::SeqCst);
    let reached = left != NEVER && left <= bytes as u64;
    if left != NEVER {
        count.store(if reached { NEVER } else { left - bytes as u64 }, Ordering::SeqCst);
    }
    reached
}

impl Weather {
    /// Returns once it reads on.
    fn stick(&self) {
        let mut stuck = self.stuck.lock().unwrap();
        stuck.1 += 1;
        stuck = self.unstuck.wait_while(stuck, |stuck| stuck.0).unwrap();
        stuck.1 -= 1;
        self.unstuck.notify_all();
    }

    /// Returns once bytes have been on their way. It is the network that takes this time, and nobody who waits for anything.
    fn delay(&self) {
        let most = self.delay.load(Ordering::SeqCst);
        if most > 0 {
            let number = self.delayed.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_micros(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % most));
        }
    }
}

/// A second connection to the same server, for what is said again on it. What is answered there nobody hears.
fn repeated(server: &TcpStream, weather: &Arc<Weather>) -> TcpStream {
    let again = TcpStream::connect(server.peer_addr().unwrap()).unwrap();
    again.set_nodelay(true).unwrap();
    weather.open.lock().unwrap().push(again.try_clone().unwrap());
    let (mut answers, weather) = (again.try_clone().unwrap(), weather.clone());
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(read @ 1..) = answers.read(&mut buffer) {
            weather.answered_again.fetch_add(read as u64, Ordering::SeqCst);
        }
    });
    again
}

fn carry(
    mut from: TcpStream,
    mut to: TcpStream,
    mut again: Option<TcpStream>,
    weather: &Weather,
    of_server: bool,
) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let mut let_through = read;
        weather.carried.fetch_add(read as u64, Ordering::SeqCst);
        weather.delay();
        if of_server {
            weather.answered.fetch_add(read as u64, Ordering::SeqCst);
        }
        if of_server && weather.deaf.load(Ordering::SeqCst) {
            continue;
        }
        let cut_after = if of_server { &weather.cut_after } else { &weather.cut_after_sent };
        let left = cut_after.load(Ordering::SeqCst);
        if left != NEVER {
            let_through = read.min(usize::try_from(left).unwrap());
            let rest = left - let_through as u64;
            cut_after.store(if let_through < read { NEVER } else { rest }, Ordering::SeqCst);
        }
        if to.write_all(&buffer[..let_through]).is_err() || let_through < read {
            break;
        }
        // A server that refuses what it hears again is looked at by who counts its answers.
        again.iter_mut().for_each(|again| _ = again.write_all(&buffer[..let_through]));
        if !of_server && is_reached(&weather.end_after_sent, read) {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if !of_server && read >= WORDS_BYTES_MAX && is_reached(&weather.stick_after_sent, read) {
            weather.stick();
        }
    }
    again.iter().for_each(|again| _ = again.shutdown(Shutdown::Both));
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
