//! The cluster of a kubeconfig: a client, a namespace, and errors in words that say what to do.

use anyhow::Context as _;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::options::ClusterOptions;

/// A cluster, and where in it.
#[derive(Clone)]
pub(super) struct Cluster {
    /// As it was read: who the caller is stands in it.
    pub(super) config: Config,
    pub(super) client: Client,
    /// Where sandboxes are.
    pub(super) namespace: String,
}

impl Cluster {
    pub(super) async fn open(options: &ClusterOptions) -> anyhow::Result<Self> {
        let mut config = read(options).await.context(
            "no cluster is configured: name a kubeconfig by --kubeconfig or KUBECONFIG, and a context of it by --context",
        )?;
        // A person is told at once, rather than after minutes.
        config.default_retry = false;
        let client = Client::try_from(config.clone()).context("the kubeconfig can't be used")?;
        let namespace = options.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Self { config, client, namespace })
    }

    /// Objects of the namespace.
    pub(super) fn here<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

async fn read(options: &ClusterOptions) -> anyhow::Result<Config> {
    let ClusterOptions { kubeconfig, context, .. } = options;
    let chosen = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    match kubeconfig {
        Some(file) => {
            let read = Kubeconfig::read_from(file)?;
            Ok(Config::from_custom_kubeconfig(read, &chosen).await?)
        }
        None if context.is_some() => Ok(Config::from_kubeconfig(&chosen).await?),
        None => Ok(Config::infer().await?),
    }
}

/// What went wrong with a request to the API server, in words.
pub(super) fn explained(error: kube::Error, what: &str) -> anyhow::Error {
    let words = match &error {
        kube::Error::Api(status) => match status.code {
            401 => format!("{what}: the API server does not know you; log in again"),
            403 => format!("{what}: you may not: {}", status.message),
            404 if status.message.contains("could not find the requested resource") => {
                format!("{what}: this cluster knows no Glovebox; have the chart installed (docs/install.md)")
            }
            _ => format!("{what}: {}", status.message),
        },
        _ => return anyhow::Error::new(error).context(format!("{what}: the API server can't be reached")),
    };
    anyhow::Error::msg(words)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        for (code, message, word) in [
            (401, "Unauthorized", "log in again"),
            (403, "agentsandboxes is forbidden", "you may not: agentsandboxes is forbidden"),
            (404, "the server could not find the requested resource", "have the chart installed"),
            (404, "agentsandboxes \"x\" not found", "x: agentsandboxes \"x\" not found"),
        ] {
            let status = Status::failure(message, "Reason").with_code(code);
            let told = format!("{:#}", explained(kube::Error::Api(Box::new(status)), "sandbox x"));
            assert!(told.contains(word), "{told}");
        }
    }
}
