//! The line between `exec` and its guardian: whole messages, descriptors with them, and an end
//! that is seen at once when the other side dies.

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// No message is longer; all are a line of JSON.
const MESSAGE_MAX: usize = 4096;
/// Standard input, output and error.
const DESCRIPTORS_MAX: usize = 3;

/// One end of the line.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    /// Two ends. Neither passes to programs that are started, unless as their standard input.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(ours), theirs))
    }

    /// The end that whoever started this process gave it.
    pub(crate) fn inherited() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// Sends a message without ever waiting: a frozen reader must not hold the sender up.
    pub(crate) fn send(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut extra = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !extra.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("too many descriptors for one message"));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut extra, flags)?;
        Ok(())
    }

    /// Waits for a message, or the end of the line: nothing.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC)
    }

    /// The same without waiting: `WouldBlock` if nothing is there.
    pub(crate) fn try_receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
    }

    fn receive_with<T: DeserializeOwned>(
        &self,
        flags: RecvFlags,
    ) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = [0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut extra = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = match recvmsg(&self.0, &mut parts, &mut extra, flags) {
            // Told once, and before what was still said: the other end is gone and left something
            // unread. What it had said is behind that, a farewell perhaps.
            Err(rustix::io::Errno::CONNRESET) => {
                recvmsg(&self.0, &mut parts, &mut extra, flags)?.bytes
            }
            received => received?.bytes,
        };
        let descriptors = extra.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors = descriptors.flatten().collect();
        if received == 0 {
            return Ok(None);
        }
        Ok(Some((serde_json::from_slice(&bytes[..received])?, descriptors)))
    }
}

impl From<OwnedFd> for Link {
    fn from(end: OwnedFd) -> Self {
        Self(end)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn messages_arrive_whole_with_their_descriptors_and_the_end_is_seen() {
        let (ours, theirs) = Link::pair().expect("a pair");
        let theirs = Link::from(theirs);
        let (reader, mut writer) = io::pipe().expect("a pipe");
        ours.send(&"first", &[reader.as_fd()]).expect("there is room");
        ours.send(&"second", &[]).expect("there is room");
        drop(reader);
        drop(ours);

        let (text, mut passed) =
            theirs.receive::<String>().expect("it arrives").expect("a message");
        assert_eq!((text.as_str(), passed.len()), ("first", 1));
        writer.write_all(b"x").expect("the passed end is open");
        drop(writer);
        let mut read = Vec::new();
        let mut passed = io::PipeReader::from(passed.remove(0));
        passed.read_to_end(&mut read).expect("the passed end reads");
        assert_eq!(read, b"x");
        let (text, passed) = theirs.receive::<String>().expect("it arrives").expect("a message");
        assert_eq!((text.as_str(), passed.len()), ("second", 0));
        assert!(theirs.receive::<String>().expect("an end is no error").is_none());
    }

    #[test]
    fn what_was_said_last_is_heard_although_the_answer_to_it_was_not_read() {
        let (ours, theirs) = Link::pair().expect("a pair");
        let theirs = Link::from(theirs);
        theirs.send(&"never read", &[]).expect("there is room");
        ours.send(&"farewell", &[]).expect("there is room");
        drop(ours);
        let (text, _) = theirs.try_receive::<String>().expect("it arrives").expect("a message");
        assert_eq!(text, "farewell");
        assert!(theirs.try_receive::<String>().expect("an end is no error").is_none());
    }

    #[test]
    fn nothing_there_and_no_room_are_told_at_once() {
        let (ours, theirs) = Link::pair().expect("a pair");
        let nothing = ours.try_receive::<String>().expect_err("nothing was sent");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let full = std::iter::repeat_with(|| ours.send(&"x", &[])).find_map(Result::err);
        assert_eq!(full.map(|full| full.kind()), Some(io::ErrorKind::WouldBlock));
        drop(theirs);
    }
}
