//! What nodes could speak to each other: length-delimited frames, whose answers come in the order of
//! the questions, beside HTTP/2. Both over one TCP connection to an echo in another thread, many
//! questions on their way at once, in alternated rounds.
//!
//! The frames are those of `tokio-util`, which peers use; HTTP/2 is the `h2` crate, on which tonic
//! and hyper stand, without what these add.

use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, SinkExt, StreamExt as _};
use h2::client::SendRequest;
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::figures::ratio;
use crate::guard::{Store, Writer, alternate};
use crate::{Guard, requirement};

/// As large as an entry with a dozen commands.
const QUESTION: [u8; 1024] = [b'x'; 1024];
/// Questions that wait for the connection.
const WAITING_MAX: usize = 1_024;

type Asked = (Bytes, oneshot::Sender<BytesMut>);

/// A connection of each kind.
struct Transports {
    frames: mpsc::Sender<Asked>,
    http2: SendRequest<Bytes>,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Frames,
    Http2,
}

/// One who asks, and waits for the answer.
enum Asker {
    Frames(mpsc::Sender<Asked>),
    Http2(SendRequest<Bytes>),
}

pub(crate) async fn run(args: &Guard) -> anyhow::Result<()> {
    anyhow::ensure!(args.rounds >= 5, "fewer than 5 pairs say nothing");
    let transports = Transports::start().await?;
    let mut ratios = Vec::new();
    for &askers in &args.connections {
        let title = "one TCP connection, 1 KiB there and back";
        let measured = alternate(&transports, title, askers, args).await?;
        let frames = ratio(&measured[0], &measured[1]);
        println!("frames reach {frames:.2} times the throughput of HTTP/2");
        ratios.push((format!("frames@{askers}"), frames));
    }
    requirement::judge(&args.require, &ratios)
}

impl Transports {
    async fn start() -> anyhow::Result<Self> {
        let (frames, http2) = echoes()?;
        let (asks, asked) = mpsc::channel(WAITING_MAX);
        tokio::spawn(ask_in_frames(connect(frames).await?, asked));
        let (http2, connection) = h2::client::handshake(connect(http2).await?).await?;
        // The loop that asks over it reports its loss.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { frames: asks, http2 })
    }
}

async fn connect(to: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Store for Transports {
    type Way = Way;
    type Writer = Asker;

    const WAYS: &[(&str, Way)] = &[("frames", Way::Frames), ("HTTP/2", Way::Http2)];

    async fn open(&self, way: Way, _: usize) -> anyhow::Result<Asker> {
        Ok(match way {
            Way::Frames => Asker::Frames(self.frames.clone()),
            Way::Http2 => Asker::Http2(self.http2.clone()),
        })
    }
}

impl Writer for Asker {
    async fn write(&mut self) -> anyhow::Result<()> {
        let question = Bytes::from_static(&QUESTION);
        let answer = match self {
            Self::Frames(asks) => {
                let (reply, answer) = oneshot::channel();
                asks.send((question, reply)).await.context("the connection is lost")?;
                answer.await.context("no answer")?
            }
            Self::Http2(send) => {
                let request = Request::post("http://echo/").body(())?;
                let (answer, mut body) =
                    send.clone().ready().await?.send_request(request, false)?;
                body.send_data(question, true)?;
                whole(answer.await?.into_body()).await?
            }
        };
        anyhow::ensure!(answer.len() == QUESTION.len(), "{} bytes came back", answer.len());
        Ok(())
    }
}

/// The questions of all in one stream; whatever waits goes in one write.
async fn ask_in_frames(stream: TcpStream, mut asked: mpsc::Receiver<Asked>) -> anyhow::Result<()> {
    let (mut sink, mut answers) = Framed::new(stream, LengthDelimitedCodec::new()).split();
    let (waits, mut waiting) = mpsc::unbounded_channel();
    let ask = async {
        while let Some((question, reply)) = asked.recv().await {
            waits.send(reply)?;
            sink.feed(question).await?;
            while let Ok((question, reply)) = asked.try_recv() {
                waits.send(reply)?;
                sink.feed(question).await?;
            }
            sink.flush().await?;
        }
        anyhow::Ok(())
    };
    let hear = async {
        while let Some(answer) = answers.next().await {
            let reply: oneshot::Sender<BytesMut> = waiting.recv().await.context("not asked")?;
            // Nobody waits for the last ones of a round.
            let _ = reply.send(answer?);
        }
        anyhow::Ok(())
    };
    tokio::try_join!(ask, hear).map(drop)
}

/// Where either is answered, by a thread of its own.
fn echoes() -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let bind = || {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        Ok::<_, std::io::Error>((listener.local_addr()?, listener))
    };
    let ((frames_at, frames), (http2_at, http2)) = (bind()?, bind()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let echoes = async {
                let (frames, http2) =
                    (TcpListener::from_std(frames)?, TcpListener::from_std(http2)?);
                tokio::try_join!(echo_frames(frames), echo_http2(http2)).map(drop)
            };
            // It ends with the process; what broke before shows at the other end.
            drop::<anyhow::Result<()>>(echoes.await);
        });
    });
    Ok((frames_at, http2_at))
}

async fn echo_frames(listener: TcpListener) -> anyhow::Result<()> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let mut frames = Framed::new(stream, LengthDelimitedCodec::new());
    while let Some(question) = frames.next().await {
        frames.feed(question?.freeze()).await?;
        while let Some(Some(question)) = frames.next().now_or_never() {
            frames.feed(question?.freeze()).await?;
        }
        SinkExt::<Bytes>::flush(&mut frames).await?;
    }
    Ok(())
}

async fn echo_http2(listener: TcpListener) -> anyhow::Result<()> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(asked) = connection.accept().await {
        let (request, mut respond) = asked?;
        tokio::spawn(async move {
            let question = whole(request.into_body()).await?;
            let mut answer = respond.send_response(Response::new(()), false)?;
            answer.send_data(question.freeze(), true)?;
            anyhow::Ok(())
        });
    }
    Ok(())
}

async fn whole(mut body: h2::RecvStream) -> anyhow::Result<BytesMut> {
    let mut data = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        data.extend_from_slice(&chunk);
    }
    Ok(data)
}
