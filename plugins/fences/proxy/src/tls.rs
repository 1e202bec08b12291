//! How an upstream is connected to, and by whom its certificate may be signed.

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Trusts the certificates in `file`, or else those that the machine trusts.
///
/// # Errors
/// Says what is wrong with the file, for people.
pub(crate) fn config(file: Option<&Path>) -> Result<ClientConfig, String> {
    let roots = match file {
        Some(file) => from_file(file)?,
        None => of_the_machine(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

pub(crate) fn connector(tls: ClientConfig, patience: Duration) -> HttpsConnector<HttpConnector> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(patience));
    HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(http)
}

fn from_file(file: &Path) -> Result<RootCertStore, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    Ok(roots)
}

/// None at all is no mistake as long as nobody speaks TLS; whoever does is told by the handshake.
fn of_the_machine() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}
