//! The API server's audit log: who wrote what, and when.

use std::{
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde::Deserialize;
use serde_json::json;

use super::{Test, random, wait};

/// The log from one moment on.
pub(crate) struct Audit {
    file: PathBuf,
    from: u64,
}

/// One request that was answered. Reads and leases are not in the log.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub(crate) verb: String,
    user: User,
    #[serde(default)]
    object_ref: ObjectRef,
    response_status: Option<ResponseStatus>,
    /// When it came in.
    pub(crate) request_received_timestamp: Timestamp,
    /// When it was answered.
    pub(crate) stage_timestamp: Timestamp,
    stage: String,
}

#[derive(Clone, Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct ResponseStatus {
    code: u16,
}

impl Entry {
    /// Who asked.
    pub(crate) fn user(&self) -> &str {
        &self.user.username
    }

    /// The resource, with its subresource after a slash.
    pub(crate) fn resource(&self) -> String {
        let ObjectRef { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }

    /// The object's namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.object_ref.namespace
    }

    /// The object's name; none where the server makes it up or the request is for many.
    pub(crate) fn name(&self) -> &str {
        &self.object_ref.name
    }

    /// The answer's code.
    pub(crate) fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }

    /// Whether the request was carried out.
    pub(crate) fn good(&self) -> bool {
        (200..300).contains(&self.code())
    }

    /// In one line.
    pub(crate) fn shown(&self) -> String {
        let (namespace, name) = (self.namespace(), self.name());
        format!(
            "{} {} {} {namespace}/{name} by {}: {}",
            self.stage_timestamp,
            self.verb,
            self.resource(),
            self.user(),
            self.code()
        )
    }
}

impl Audit {
    /// From now on.
    pub(crate) fn from_now(test: &Test) -> Result<Self> {
        let file = test.local()?.run.join("log/audit.jsonl");
        let from = std::fs::metadata(&file).with_context(|| file.display().to_string())?.len();
        Ok(Self { file, from })
    }

    /// Everything that was answered up to now.
    pub(crate) async fn entries(&self, test: &Test) -> Result<Vec<Entry>> {
        // A write of our own: once it is in the log, all that was answered before it is.
        let marker = format!("audit-{}", random()?);
        let maps: Api<ConfigMap> = Api::namespaced(test.client.clone(), "default");
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": marker}}))?;
        maps.create(&PostParams::default(), &map).await?;
        maps.delete(&marker, &DeleteParams::default()).await?;
        let ours = |entry: &Entry| entry.name() == marker && entry.verb == "delete";
        wait::poll("the audit log is written", async || {
            let entries = self.read()?;
            Ok(entries.iter().any(ours).then_some(entries))
        })
        .await
    }

    fn read(&self) -> Result<Vec<Entry>> {
        let mut file = std::fs::File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let entries =
            whole.lines().map(|line| serde_json::from_str::<Entry>(line).with_context(|| line.to_owned()));
        let mut entries = entries.collect::<Result<Vec<_>>>()?;
        entries.retain(|entry| entry.stage == "ResponseComplete");
        Ok(entries)
    }
}
