//! A writer in a process of its own, killed at random: what it has acknowledged is there, once, and in order.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{Folder, open, said, say};

/// Where the child finds the trail and its parent.
const TRAIL: &str = "GLOVEBOX_TEST_TRAIL";
const PARENT: &str = "GLOVEBOX_TEST_PARENT";
/// Acts that are said at least, and kills at most: it goes on until one met the writer in the middle, however fast that is.
const ACTS: u64 = 4000;
const KILLS: u32 = 300;
/// Most of them at once.
const MOST: u64 = 60;

/// What the child does; a test that does nothing where nobody asked for it.
#[test]
fn child() {
    let (Ok(trail), Ok(parent)) = (std::env::var(TRAIL), std::env::var(PARENT)) else { return };
    let parent = TcpStream::connect(parent).unwrap();
    let mut writer = open(trail.as_ref());
    for line in BufReader::new(parent.try_clone().unwrap()).lines() {
        let line = line.unwrap();
        let (first, end) = line.split_once(' ').unwrap();
        say(&mut writer, "a", first.parse().unwrap()..end.parse().unwrap());
        (&parent).write_all(b"taken\n").unwrap();
    }
}

struct Running {
    child: Arc<Mutex<Child>>,
    socket: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Running {
    fn start(folder: &Folder, listener: &TcpListener) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "audit::tests::killed::child"])
            .env(TRAIL, &folder.0)
            .env(PARENT, listener.local_addr().unwrap().to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (socket, _) = listener.accept().unwrap();
        let answers = BufReader::new(socket.try_clone().unwrap());
        Self { child: Arc::new(Mutex::new(child)), socket, answers }
    }

    /// Whether it acknowledged these.
    fn takes(&mut self, from: u64, to: u64) -> bool {
        let mut answer = String::new();
        self.socket.write_all(format!("{from} {to}\n").as_bytes()).is_ok()
            && self.answers.read_line(&mut answer).is_ok()
            && answer == "taken\n"
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Numbers that are the same each time: Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn a_writer_that_is_killed_loses_nothing_that_it_acknowledged() {
    let folder = Folder::new("killed");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut random = Random(7);
    let (mut taken, mut kills, mut unanswered) = (0, 0, 0);
    let mut answered = true;
    // What nobody heard of is offered again before it is looked at.
    while !answered || (taken < ACTS || unanswered == 0) && kills < KILLS {
        let mut running = Running::start(&folder, &listener);
        let whole = 1 + random.below(20);
        for _ in 0..whole {
            let to = taken + 1 + random.below(MOST);
            assert!(running.takes(taken, to), "nobody has killed it yet");
            taken = to;
        }
        // Killed while it is about the next, early or late.
        let to = taken + 1 + random.below(MOST);
        let (child, after) = (
            running.child.clone(),
            Duration::from_micros(random.below([300, 3000][usize::from(kills % 2 == 0)])),
        );
        let killer = std::thread::spawn(move || {
            std::thread::sleep(after);
            child.lock().unwrap().kill()
        });
        answered = running.takes(taken, to);
        killer.join().unwrap().unwrap();
        kills += 1;
        // What was acknowledged must be there; what was not is offered again.
        taken = if answered { to } else { taken };
        unanswered += u32::from(!answered);
    }
    let all: Vec<_> = (0..taken).map(|n| format!("a-{n}")).collect();
    assert!(said(&folder.0).unwrap() == all, "after {kills} kills the trail is another one");
    assert!(kills > 5 && unanswered > 0, "it was killed {kills} times, {unanswered} of them in the middle");
}
