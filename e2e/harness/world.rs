//! The pretended internet: programs that listen at its addresses and tell who reached them. What a sandbox must not reach
//! is made to answer, so that a refusal is the fence's and not an empty place's.

use std::{
    collections::BTreeSet,
    io::{Read, Seek, SeekFrom},
    net::{SocketAddr, TcpListener, UdpSocket},
    path::PathBuf,
    process::{ExitCode, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::OnceCell,
};

use super::{local::Local, site::Site, test::lock, wait};

/// What listens in the world, by TCP; on port 53 by UDP too.
const PLACES: [&str; 17] = [
    "203.0.113.7:80",
    "203.0.113.7:443",
    "203.0.113.7:8443",
    "203.0.113.8:80",
    "203.0.113.8:443",
    "203.0.113.8:8443",
    "203.0.113.8:53",
    "203.0.113.9:25",
    "203.0.113.9:80",
    "203.0.113.9:443",
    "198.51.100.7:443",
    "169.254.169.254:80",
    "169.254.169.254:443",
    "172.16.0.7:443",
    "10.0.0.7:80",
    "10.0.0.7:443",
    "192.168.0.7:443",
];
/// How this program is told to be what listens.
const LISTEN: &str = "__listen";

/// The world, opened when the first test needs it.
pub(crate) struct World {
    xtask: String,
    log: PathBuf,
    /// The authority that vouches for the sites, which the gateway was told to trust when it was installed.
    authority: PathBuf,
    listener: OnceCell<Listener>,
    seen: Arc<Mutex<Seen>>,
}

/// The program that listens.
struct Listener {
    child: Mutex<Option<Child>>,
    /// The certificate, as PEM, of whoever vouches for the places that speak TLS.
    certificate: String,
}

/// What the places tell.
#[derive(Default)]
struct Seen {
    arrivals: BTreeSet<Arrival>,
    /// Heads of requests: the place, and the text.
    requests: Vec<(SocketAddr, String)>,
    /// This program's own connections, which are nobody's arrival.
    own: BTreeSet<SocketAddr>,
}

/// Somebody reached a place: `tcp` or `udp`, the place, and who.
type Arrival = (String, SocketAddr, SocketAddr);

impl World {
    /// The world of a local cluster.
    pub(crate) fn new(local: &Local) -> Self {
        let log = local.run.join("log/world-dns.log");
        let authority = local.run.join("world-authority.pem");
        Self { xtask: local.xtask.clone(), log, authority, listener: OnceCell::new(), seen: Arc::default() }
    }

    /// Has the places answer.
    pub(crate) async fn open(&self) -> Result<()> {
        self.listener.get_or_try_init(|| self.listen()).await?;
        Ok(())
    }

    async fn listen(&self) -> Result<Listener> {
        let program = std::env::current_exe()?;
        let mut child = Command::new(&self.xtask)
            .args(["cluster", "world", "--"])
            .arg(program)
            .arg(LISTEN)
            .arg(&self.authority)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the world's listener does not start")?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let first = lines.next_line().await?;
        let certificate = match first.as_deref().and_then(|line| line.strip_prefix("listening ")) {
            Some(text) => serde_json::from_str(text).context("the certificate of the world")?,
            None => bail!("the world's listener says {first:?}"),
        };
        let seen = self.seen.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                lock(&seen).note(&line);
            }
        });
        for place in PLACES {
            let stream = TcpStream::connect(place)
                .await
                .with_context(|| format!("{place} does not answer on the node itself"))?;
            lock(&self.seen).own.insert(stream.local_addr()?);
        }
        Ok(Listener { child: Mutex::new(Some(child)), certificate })
    }

    /// What verifies the places that speak TLS, as PEM; empty before the world is open.
    pub(crate) fn certificate(&self) -> &str {
        self.listener.get().map_or("", |listener| &listener.certificate)
    }

    /// What has reached the world from an address.
    pub(crate) fn arrivals(&self, from: &str) -> Vec<String> {
        let seen = lock(&self.seen);
        let ours = seen.arrivals.iter().filter(|(_, _, peer)| peer.ip().to_string() == from);
        ours.map(|(protocol, place, _)| format!("{protocol} {place}")).collect()
    }

    /// Who has reached an address of the world, whoever came, at any port: `PROTOCOL PLACE from PEER`.
    pub(crate) fn arrivals_at(&self, address: &str) -> Vec<String> {
        let seen = lock(&self.seen);
        let others = seen
            .arrivals
            .iter()
            .filter(|(_, place, peer)| place.ip().to_string() == address && !seen.own.contains(peer));
        others.map(|(protocol, place, peer)| format!("{protocol} {place} from {peer}")).collect()
    }

    /// The heads of requests that reached the world with this text in them.
    pub(crate) fn requests(&self, text: &str) -> Vec<String> {
        let seen = lock(&self.seen);
        let found = seen.requests.iter().filter(|(_, head)| head.contains(text));
        found.map(|(place, head)| format!("{place}: {head}")).collect()
    }

    /// Forgets what has reached it from an address.
    pub(crate) fn forget(&self, from: &str) {
        lock(&self.seen).arrivals.retain(|(_, _, peer)| peer.ip().to_string() != from);
    }

    /// What the world's name server is asked, from now on.
    pub(crate) fn questions(&self) -> Result<Questions> {
        let from = std::fs::metadata(&self.log).with_context(|| self.log.display().to_string())?.len();
        Ok(Questions { log: self.log.clone(), from })
    }

    /// Ends what listens.
    pub(crate) async fn close(&self) {
        let child = self.listener.get().and_then(|listener| lock(&listener.child).take());
        if let Some(mut child) = child {
            // It ends with its input.
            drop(child.stdin.take());
            let _ = child.wait().await;
        }
    }
}

impl Seen {
    fn note(&mut self, line: &str) {
        if let Some(request) = line.strip_prefix("request ") {
            let parsed = request.split_once(' ').and_then(|(place, head)| {
                Some((place.parse().ok()?, serde_json::from_str::<String>(head).ok()?))
            });
            self.requests.extend(parsed);
        } else {
            self.arrivals.extend(arrival(line));
        }
    }
}

fn arrival(line: &str) -> Option<Arrival> {
    let mut words = line.split(' ');
    Some((words.next()?.into(), words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The log of the world's name server, from one moment on.
pub(crate) struct Questions {
    log: PathBuf,
    from: u64,
}

impl Questions {
    /// Who asked for which name, in lower case and with its last dot, once `marker` was asked for: then all that was asked
    /// before is in the log. `marker` is a name that somebody has asked for since.
    pub(crate) async fn until(&self, marker: &str) -> Result<Vec<(String, String)>> {
        let marker = format!("{}.", marker.trim_end_matches('.'));
        wait::poll(&format!("the log of the world's DNS has a question for {marker}"), async || {
            let asked = self.read()?;
            Ok(asked.iter().any(|(_, name)| *name == marker).then_some(asked))
        })
        .await
    }

    fn read(&self) -> Result<Vec<(String, String)>> {
        let mut file = std::fs::File::open(&self.log).with_context(|| self.log.display().to_string())?;
        ensure!(file.metadata()?.len() >= self.from, "the log of the world's DNS was cut short");
        file.seek(SeekFrom::Start(self.from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(whole.lines().filter_map(question).collect())
    }
}

/// Reads `[INFO] 10.244.0.5:40123 - 4711 "A IN allowed.example. udp 44 false 1232" NOERROR ...`.
fn question(line: &str) -> Option<(String, String)> {
    let (before, rest) = line.split_once(" - ")?;
    let peer: SocketAddr = before.rsplit(' ').next()?.parse().ok()?;
    let name = rest.split('"').nth(1)?.split(' ').nth(2)?;
    Some((peer.ip().to_string(), name.to_ascii_lowercase()))
}

/// Listens, if this program was started for that.
pub(crate) fn listen_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    (arguments.next().as_deref() == Some(LISTEN)).then(|| match listen(arguments.next().as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn listen(authority: Option<&str>) -> Result<()> {
    let authority = authority.context("no authority is named")?;
    let authority = std::fs::read_to_string(authority)
        .with_context(|| format!("{authority}: `cargo xtask` makes it where it installs"))?;
    let site = Arc::new(Site::new(&authority)?);
    for place in PLACES {
        let address: SocketAddr = place.parse()?;
        let listener = TcpListener::bind(address).with_context(|| format!("can't listen at {place}"))?;
        let site = site.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Ok(peer) = stream.peer_addr() else { continue };
                println!("tcp {address} {peer}");
                let site = site.clone();
                // Whoever comes is served or not; that it came is what counts.
                thread::spawn(move || site.serve(stream, address));
            }
        });
        if address.port() == 53 {
            let socket =
                UdpSocket::bind(address).with_context(|| format!("can't listen at {place} by UDP"))?;
            thread::spawn(move || {
                let mut buffer = [0; 512];
                while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                    println!("udp {address} {peer}");
                    let _ = socket.send_to(&buffer[..length], peer);
                }
            });
        }
    }
    println!("listening {}", serde_json::to_string(site.certificate())?);
    // Until whoever started this goes.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
