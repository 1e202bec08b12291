//! Certificates for servers that tests start, made by `openssl`.

use std::path::Path;
use std::process::Command;

/// What [`make`] calls the certificate.
pub const CERTIFICATE: &str = "certificate.pem";
/// What [`make`] calls its key.
pub const KEY: &str = "key.pem";

/// Writes a certificate that signs for itself, and its key, into `dir`. `names` is what it is for, as
/// `openssl` has it: `IP:127.0.0.1`.
#[track_caller]
pub fn make(dir: &Path, names: &str) {
    let openssl = Command::new("openssl")
        .current_dir(dir)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-keyout", KEY, "-out", CERTIFICATE, "-days", "2", "-subj", "/CN=store"])
        .args(["-addext", &format!("subjectAltName={names}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .output()
        .expect("openssl is needed for this test");
    assert!(openssl.status.success(), "{}", String::from_utf8_lossy(&openssl.stderr));
}
