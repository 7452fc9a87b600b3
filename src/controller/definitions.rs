//! `glovebox crds`: the custom resource definitions, printed or applied.

use std::{io::Write, path::PathBuf};

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};

use crate::api;

/// Print the custom resource definitions, or apply them to the cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Apply them by server-side apply, as an upgrade needs it.
    #[arg(long, conflicts_with = "output_dir")]
    pub apply: bool,
    /// Write one file each into this directory.
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
}

/// One definition as YAML, as it stands in `crds/`.
///
/// # Errors
/// Never for the types of this crate.
pub fn yaml(definition: &CustomResourceDefinition) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(&serde_json::to_value(definition)?)?)
}

/// Its file's name.
#[must_use]
pub fn file_name(definition: &CustomResourceDefinition) -> String {
    format!("{}.yaml", definition.name_any())
}

/// Carries out the command.
///
/// # Errors
/// When a file can't be written or the API server refuses.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let definitions = api::crds();
    if let Some(dir) = options.output_dir {
        std::fs::create_dir_all(&dir).with_context(|| format!("can't make {}", dir.display()))?;
        for definition in &definitions {
            let path = dir.join(file_name(definition));
            std::fs::write(&path, yaml(definition)?)
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        return Ok(());
    }
    if !options.apply {
        let mut out = std::io::stdout().lock();
        for definition in &definitions {
            write!(out, "---\n{}", yaml(definition)?)?;
        }
        return Ok(());
    }
    let crds: Api<CustomResourceDefinition> = Api::all(crate::kubernetes::client().await?);
    // Helm's own manager: it applies a chart's crds/ by server-side apply too, and would find a conflict with any other.
    let params = PatchParams::apply("helm").force();
    for definition in &definitions {
        let name = definition.name_any();
        crds.patch(&name, &params, &Patch::Apply(definition))
            .await
            .with_context(|| format!("can't apply {name}"))?;
        writeln!(std::io::stdout(), "{name} applied")?;
    }
    Ok(())
}
