//! An nginx of its own for a test: storage that speaks HTTP, with the methods of WebDAV.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::ports::free_port;
use crate::{certificate, within};

const START_PATIENCE: Duration = Duration::from_secs(30);

/// It stores what is put, in a directory that goes away with it.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    home: TempDir,
    addr: SocketAddr,
    scheme: &'static str,
}

impl Nginx {
    /// Starts it on a free port and waits until it answers.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_as("http")
    }

    /// The same behind TLS, with a certificate that only [`Nginx::authority`] vouches for.
    #[track_caller]
    pub fn start_tls() -> Self {
        Self::start_as("https")
    }

    #[track_caller]
    fn start_as(scheme: &'static str) -> Self {
        // Between finding a free port and listening on it somebody else may take it.
        for _ in 0..10 {
            if let Some(nginx) = Self::try_start(free_port(), scheme) {
                return nginx;
            }
        }
        panic!("nginx did not start on any of ten free ports");
    }

    fn try_start(port: u16, scheme: &'static str) -> Option<Self> {
        let home = TempDir::new().expect("a temporary directory can be made");
        let root = home.path().display().to_string();
        fs::create_dir(home.path().join("files")).expect("a directory can be made");
        fs::write(home.path().join("nginx.conf"), configuration(&root, port, scheme))
            .expect("it fits");
        if scheme == "https" {
            certificate::make(home.path(), "IP:127.0.0.1");
        }
        let child = Command::new("nginx")
            .args(["-e", "error.log", "-p", &root, "-c", "nginx.conf"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("nginx is needed for this test: {error}"));
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut nginx = Self { child, home, addr, scheme };
        let up = within(START_PATIENCE, "nginx answers or exits", || {
            if nginx.child.try_wait().expect("the process is ours").is_some() {
                return Some(false);
            }
            TcpStream::connect(addr).is_ok().then_some(true)
        });
        up.then_some(nginx)
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// For whoever is told of it by URL.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.addr)
    }

    /// Who vouches for its certificate, in PEM.
    pub fn authority(&self) -> PathBuf {
        self.home.path().join("certificate.pem")
    }

    /// Where it keeps what is put under `/name`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join("files").join(name)
    }

    /// What it has stored under `/name`.
    pub fn stored(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.file(name)).ok()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its one process is also the one that answers, so nothing of it is left.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One process, everything in its own directory, nothing written to a log.
fn configuration(root: &str, port: u16, scheme: &str) -> String {
    let tls = match scheme {
        "https" => format!(
            "ssl; ssl_certificate {root}/certificate.pem; ssl_certificate_key {root}/key.pem"
        ),
        _ => String::new(),
    };
    let temp = |name: &str| format!("{name}_temp_path {root}/{name};");
    let temps = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(temp).join("\n  ");
    format!(
        "daemon off;
master_process off;
pid {root}/pid;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_max_body_size 0;
  absolute_redirect off;
  {temps}
  server {{
    listen 127.0.0.1:{port} backlog=4096 {tls};
    root {root}/files;
    location / {{
      dav_methods PUT DELETE MKCOL COPY MOVE;
      create_full_put_path on;
    }}
  }}
}}
"
    )
}
