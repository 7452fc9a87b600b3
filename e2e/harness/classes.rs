//! The classes that tests use: one for each runtime, made once a run, and special ones that a test makes for itself.

use anyhow::{Context, Result};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use glovebox::api::SandboxClass;

use super::Test;

/// Field manager of what the suite applies.
const MANAGER: &str = "glovebox-e2e";

/// What a sandbox really runs on here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// The node's own kernel.
    Runc,
    /// A kernel that is a program.
    Gvisor,
}

impl Runtime {
    /// All of them: what attacks a sandbox attacks each.
    pub(crate) const ALL: [Self; 2] = [Self::Gvisor, Self::Runc];

    /// Its name in test names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Gvisor => "gvisor",
        }
    }

    /// The class that all tests share.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Runc => "e2e-runc",
            Self::Gvisor => "e2e-gvisor",
        }
    }

    /// `spec` of a class on this runtime; tests add what they need.
    pub(crate) fn class_spec(self) -> Value {
        let mut spec = json!({
            "startupDeadline": "2m",
            "ttl": {"default": "5m", "max": "1h"},
            "resources": {
                "default": {"cpu": "250m", "memory": "192Mi", "ephemeralStorage": "64Mi"},
                "max": {"cpu": "2", "memory": "2Gi", "ephemeralStorage": "1Gi"},
            },
            "workspace": {"defaultSize": "16Mi", "maxSize": "1Gi"},
            // Most tests attack; those of what becomes of an attacker say so.
            "detection": {"action": "Report"},
        });
        match self {
            Self::Runc => {
                spec["trust"] = json!("Trusted");
                spec["runtime"] = json!({"isolation": "SharedKernel"});
            }
            Self::Gvisor => {
                spec["trust"] = json!("Restricted");
                spec["runtime"] =
                    json!({"runtimeClassName": "gvisor", "handler": "runsc", "isolation": "UserspaceKernel"});
            }
        }
        spec
    }
}

/// Makes the classes that all tests share.
pub(crate) async fn make_shared(client: &Client) -> Result<()> {
    let api: Api<SandboxClass> = Api::all(client.clone());
    for runtime in Runtime::ALL {
        let class = json!({
            "apiVersion": "glovebox.dev/v1alpha1", "kind": "SandboxClass",
            "metadata": {"name": runtime.class()}, "spec": runtime.class_spec(),
        });
        let params = PatchParams::apply(MANAGER).force();
        api.patch(runtime.class(), &params, &Patch::Apply(class)).await.context(runtime.class())?;
    }
    Ok(())
}

/// Takes them away again.
pub(crate) async fn remove_shared(client: &Client) -> Result<()> {
    let api: Api<SandboxClass> = Api::all(client.clone());
    for runtime in Runtime::ALL {
        match api.delete(runtime.class(), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).context(runtime.class()),
        }
    }
    Ok(())
}

impl Test {
    /// Makes a class of the test's own, `change`d from what all tests share, and gives its name.
    pub(crate) async fn class(&self, runtime: Runtime, hint: &str, change: &Value) -> Result<String> {
        let name = format!("e2e-{hint}-{}", self.suffix);
        self.class_named(&name, runtime, change).await?;
        Ok(name)
    }

    /// The same with a name that was told beforehand.
    pub(crate) async fn class_named(
        &self,
        name: &str,
        runtime: Runtime,
        change: &Value,
    ) -> Result<SandboxClass> {
        let mut spec = runtime.class_spec();
        merge(&mut spec, change);
        let class: SandboxClass = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        self.forget_later::<SandboxClass>(name);
        let api: Api<SandboxClass> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &class).await.with_context(|| format!("class {name}"))
    }
}

/// Merges as a JSON merge patch does (RFC 7386): null removes.
pub(crate) fn merge(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (key, value) in change {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
