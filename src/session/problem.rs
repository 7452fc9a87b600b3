//! What is told when a request is not carried out: one shape, a closed list of reasons, and words that say what to do next.

use std::borrow::Cow;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::json;

/// Seconds after which what was too much now may be tried again.
const RETRY_AFTER: &str = "1";
/// Longest message, in characters: a parser's words repeat what it was given.
const MOST_CHARS: usize = 500;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $status:ident,)+) => {
        /// Why a request is not carried out.
        #[derive(JsonSchema, Serialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The spelling in answers and metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// The HTTP status that goes with it.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }
        }
    };
}

reasons! {
    /// The request can't be read, or a field is out of its bounds.
    InvalidRequest = BAD_REQUEST,
    /// There is no token, or it is not good.
    Unauthenticated = UNAUTHORIZED,
    /// A rule is missing; the message says which.
    Forbidden = FORBIDDEN,
    /// There is no such path.
    NoSuchPath = NOT_FOUND,
    /// The path takes other methods.
    MethodNotAllowed = METHOD_NOT_ALLOWED,
    /// There is no such sandbox.
    NotFound = NOT_FOUND,
    /// There is nothing at the path, in the sandbox's workspace.
    NoSuchFile = NOT_FOUND,
    /// The body did not come in time.
    TooSlow = REQUEST_TIMEOUT,
    /// A file operation was not done in the time that it was given.
    DeadlineExceeded = REQUEST_TIMEOUT,
    /// The sandbox does not run yet, or is not fenced; the message says what it waits for.
    NotReady = CONFLICT,
    /// The result of the call with this idempotency key was too big to be kept.
    ResultNotKept = CONFLICT,
    /// What is at the path is of another kind, is there already, is not empty, or changed meanwhile; the message says which.
    FileConflict = CONFLICT,
    /// The sandbox ended.
    Ended = GONE,
    /// The body is too big, or the file or directory.
    TooLarge = PAYLOAD_TOO_LARGE,
    /// The body is not said to be JSON.
    NotJson = UNSUPPORTED_MEDIA_TYPE,
    /// The idempotency key was used for another request.
    KeyReused = UNPROCESSABLE_ENTITY,
    /// The path leads out of the workspace, to what is no file, or to where nothing may be read or written.
    PathRefused = UNPROCESSABLE_ENTITY,
    /// The archive is none, or has an entry that is refused; the message names it.
    ArchiveRefused = UNPROCESSABLE_ENTITY,
    /// This replica, or the namespace's share of it, is full.
    TooManyCalls = TOO_MANY_REQUESTS,
    /// As many calls run in the sandbox as may.
    SandboxBusy = TOO_MANY_REQUESTS,
    /// The session failed; not the request.
    Internal = INTERNAL_SERVER_ERROR,
    /// The sandbox's agent refused the call, or said what no agent says. The call may have run if the message says so.
    AgentFailed = BAD_GATEWAY,
    /// The connection to the sandbox broke while the call ran: it may have run to its end.
    CallLost = BAD_GATEWAY,
    /// The API server does not answer, so that nobody can be let in.
    ApiUnavailable = SERVICE_UNAVAILABLE,
    /// Nothing may be done that is not on the record, and the audit trail can't be reached.
    NotRecorded = SERVICE_UNAVAILABLE,
    /// The sandbox's agent can't be reached. The call did not run.
    AgentUnreachable = SERVICE_UNAVAILABLE,
    /// This replica is about to end.
    ShuttingDown = SERVICE_UNAVAILABLE,
    /// The sandbox's agent was silent beyond the call's deadline, or the client did not read.
    DeadlineMissed = GATEWAY_TIMEOUT,
    /// The sandbox's workspace is full.
    NoSpace = INSUFFICIENT_STORAGE,
}

/// A request that is not carried out.
#[derive(JsonSchema, Serialize, Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Why, in one word.
    pub reason: Reason,
    /// Why, and what to do next.
    pub message: String,
    /// The field, parameter or header that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<Cow<'static, str>>,
}

/// The body of every answer that is no success.
#[derive(JsonSchema, Serialize, Debug)]
pub(super) struct ErrorBody {
    /// What is wrong.
    pub(super) error: Problem,
}

impl Problem {
    /// About no field.
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if let Some((end, _)) = message.char_indices().nth(MOST_CHARS) {
            message.truncate(end);
        }
        Self { reason, message, field: None }
    }

    /// A field is not as it should be.
    pub(crate) fn field(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let field = field.into();
        let message = format!("{field}: {}", message.into());
        Self { field: Some(field), ..Self::new(Reason::InvalidRequest, message) }
    }

    /// The same about a field.
    pub(super) fn about(self, field: &'static str) -> Self {
        Self { field: Some(field.into()), ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.reason.status();
        let mut response = json(status, &ErrorBody { error: self });
        let headers = response.headers_mut();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
