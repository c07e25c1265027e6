//! Tidy, bench, generate, release: what developers run and users do not.

fn main() -> anyhow::Result<()> {
    anyhow::bail!("cargo xtask bench claims | decide | start")
}
