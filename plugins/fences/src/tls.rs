//! Whom to trust at the other end.

use crate::error::Error;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Certificates are small; a larger file is another file.
const CA_FILE_MAX: u64 = 4 * 1024 * 1024;

/// Trusts the authorities of the machine, or those in `ca_file` alone.
pub(crate) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, Error> {
    let roots = match ca_file {
        Some(path) => from_file(path)?,
        None => of_the_machine(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Usage(format!("TLS: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// The file as it is, for a client that reads it itself.
pub(crate) fn pem(path: &Path) -> Result<Vec<u8>, Error> {
    let wrong = |what: String| Error::Usage(format!("{}: {what}", path.display()));
    let size = fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if size > CA_FILE_MAX {
        return Err(wrong("too large for certificates".to_owned()));
    }
    fs::read(path).map_err(|error| wrong(error.to_string()))
}

fn from_file(path: &Path) -> Result<RootCertStore, Error> {
    let wrong = |what: String| Error::Usage(format!("{}: {what}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem(path)?) {
        let certificate = certificate.map_err(|error| wrong(format!("{error:?}")))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}

/// What cannot be read is left out: a connection that needs it says so.
fn of_the_machine() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}
