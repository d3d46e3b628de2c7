//! TLS to a fleet's server: makes a connector that accepts only a certificate that names the host
//! and is signed by a trusted authority (a file's, or the system's). `connection.rs` uses it where
//! `url.rs` asks for protection.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connector that trusts the authorities of a file, or of the system where none is named.
pub(crate) fn connector(authority: Option<&str>) -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(file) => {
            let certificates = CertificateDer::pem_file_iter(file)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|e| format!("sslrootcert={file}: {e}"))?;
            for c in certificates {
                roots.add(c).map_err(|e| format!("sslrootcert={file}: {e}"))?;
            }
        }
        None => {
            for c in rustls_native_certs::load_native_certs().certs {
                // A system may hold certificates that no TLS of today accepts.
                let _ = roots.add(c);
            }
        }
    }
    if roots.is_empty() {
        return Err("no authority is trusted here".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
