//! One direction of a request and its answer: bytes as the toll lets them pass, bodies to their end and no further, and no secret on
//! the way back.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{
    broker::Redactor,
    flow::Cause,
    framing::{Body, Framing, Out},
    head::{Answer, Request},
    relay::Activity,
    toll::Toll,
};

/// What is read at once.
const CHUNK: usize = 16 * 1024;

/// One direction.
pub(super) struct Way<'a, W> {
    pub(super) to: &'a mut W,
    pub(super) toll: &'a Toll,
    pub(super) activity: &'a Activity<'a>,
    /// Takes out what the other side must not see.
    pub(super) redactor: Option<&'a mut Redactor>,
}

/// A body on its way through a redactor. Chunks are cut anew: where they were cut may be within what is taken out.
struct Redacted<'a> {
    redactor: &'a mut Redactor,
    carried: Vec<u8>,
}

impl Out for Redacted<'_> {
    fn frame(&mut self, _: &[u8]) {}

    fn payload(&mut self, bytes: &[u8]) {
        self.carried.extend_from_slice(bytes);
    }
}

impl Redacted<'_> {
    /// What is clean by now, in a frame of its own.
    fn framed(self, framing: Framing, done: bool) -> Vec<u8> {
        let mut clean = Vec::with_capacity(self.carried.len());
        self.redactor.push(&self.carried, &mut clean);
        if done {
            self.redactor.finish(&mut clean);
        }
        if framing != Framing::Chunked {
            return clean;
        }
        let mut out = Vec::with_capacity(clean.len() + 32);
        if !clean.is_empty() {
            out.extend(format!("{:x}\r\n", clean.len()).into_bytes());
            out.extend(clean);
            out.extend(b"\r\n");
        }
        out.extend(if done { b"0\r\n\r\n".as_slice() } else { b"" });
        out
    }
}

impl<W: AsyncWrite + Unpin> Way<'_, W> {
    /// Sends, as the toll lets it pass.
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> Result<(), Cause> {
        while !bytes.is_empty() {
            let granted = self.toll.pass(bytes.len()).await.map_err(|_| Cause::Spent)?;
            let (now, rest) = bytes.split_at(granted.min(bytes.len()));
            self.toll.settle(granted, now.len());
            self.to.write_all(now).await.map_err(|_| Cause::Broken)?;
            self.activity.touch();
            bytes = rest;
        }
        // TLS keeps what it can until it is told.
        self.to.flush().await.map_err(|_| Cause::Broken)
    }

    /// A body, until its end and not a byte further.
    pub(super) async fn body(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        first: &[u8],
        framing: Framing,
    ) -> Result<(), Cause> {
        let mut body = Body::new(framing);
        let mut more = first.to_vec();
        loop {
            let out = match self.redactor.as_deref_mut() {
                None => {
                    let mut out = Vec::new();
                    body.feed(&more, &mut out).map_err(|_| Cause::Malformed)?;
                    out
                }
                Some(redactor) => {
                    let mut out = Redacted { redactor, carried: Vec::new() };
                    body.feed(&more, &mut out).map_err(|_| Cause::Malformed)?;
                    out.framed(framing, body.is_done())
                }
            };
            self.send(&out).await?;
            if body.is_done() {
                return Ok(());
            }
            more = chunk(from).await?.ok_or(Cause::Broken)?;
        }
    }

    /// The answer: heads until the last, then the body. If it goes over to a WebSocket, what came after the head.
    pub(super) async fn answer(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        request: &Request,
        answered: &mut bool,
    ) -> Result<Option<Vec<u8>>, Cause> {
        let mut bytes = Vec::new();
        loop {
            let read = Answer::parse(&bytes, &request.method, request.version, request.websocket)
                .map_err(|_| Cause::Malformed)?;
            let Some((head, length)) = read else {
                bytes.extend(chunk(from).await?.ok_or(Cause::Broken)?);
                continue;
            };
            bytes = bytes.split_off(length);
            if self.redactor.is_some() && !head.interim() && !head.is_searchable() {
                return Err(Cause::Encoded);
            }
            *answered |= !head.interim();
            let mut rendered = head.render(request.version, &request.method);
            if let Some(redactor) = self.redactor.as_deref_mut() {
                redactor.whole(&mut rendered);
            }
            self.send(&rendered).await?;
            if head.interim() {
                continue;
            }
            if head.switches() {
                return Ok(Some(bytes));
            }
            if let Some(framing) = head.framing {
                return self.body(from, &bytes, framing).await.map(|()| None);
            }
            return self.everything(from, &bytes).await.map(|()| None);
        }
    }

    /// Everything, and the end of it.
    pub(super) async fn all(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        first: &[u8],
    ) -> Result<(), Cause> {
        self.everything(from, first).await?;
        self.to.shutdown().await.map_err(|_| Cause::Broken)
    }

    /// Everything there is, in no frame.
    async fn everything(&mut self, from: &mut (impl AsyncRead + Unpin), first: &[u8]) -> Result<(), Cause> {
        let mut more = first.to_vec();
        loop {
            if let Some(redactor) = self.redactor.as_deref_mut() {
                let mut clean = Vec::new();
                redactor.push(&more, &mut clean);
                more = clean;
            }
            self.send(&more).await?;
            match chunk(from).await? {
                Some(next) => more = next,
                None => break,
            }
        }
        let mut last = Vec::new();
        if let Some(redactor) = self.redactor.as_deref_mut() {
            redactor.finish(&mut last);
        }
        self.send(&last).await
    }
}

/// What comes next; none at the end.
async fn chunk(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>, Cause> {
    let mut bytes = Vec::with_capacity(CHUNK);
    match from.read_buf(&mut bytes).await {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(bytes)),
        // Some servers end TLS without saying so. Where a length says what is missing, that is noticed.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(_) => Err(Cause::Broken),
    }
}
