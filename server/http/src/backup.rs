//! `GET /v1/backup`: everything that there is, as one file.
//!
//! It is written as fast as its reader takes it, and no faster. A stream that ends early is seen as
//! such by its reader: the file has an end that says so.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use actix_web::http::header::HeaderValue;
use actix_web::http::{Method, Version};
use bytes::Bytes;
use futures_util::stream;
use leasehold_node::backup::Backup;
use leasehold_wire::{Code, Problem};
use std::convert::Infallible;

pub(crate) const PARAMETERS: &[&str] = &[];

const BACKUP: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// `GET /v1/backup`
pub(crate) async fn get(ask: Ask) -> Answered {
    if ask.head.version < Version::HTTP_11 {
        // Without chunks the end of the connection is the end of the answer, wherever it comes.
        return Err(Problem::new(400, Code::InvalidRequest, "a stream needs HTTP/1.1").into());
    }
    ask.query(PARAMETERS)?;
    if ask.head.method == Method::HEAD {
        return Ok(Answer::stream(stream::empty(), BACKUP));
    }
    let backup = ask.node().backup(ask.call).await?;
    let revision = backup.revision();
    Ok(Answer::stream(stream::unfold(backup, next), BACKUP).at(revision))
}

async fn next(mut backup: Backup) -> Option<(Result<Bytes, Infallible>, Backup)> {
    match backup.next().await {
        Ok(bytes) => Some((Ok(Bytes::from(bytes?)), backup)),
        Err(failure) => {
            tracing::error!(?failure, "a backup ended before its end");
            None
        }
    }
}
