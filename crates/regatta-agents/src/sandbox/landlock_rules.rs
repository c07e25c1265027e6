//! Restricts which files a process and its descendants can access, with Landlock, a Linux kernel
//! feature for that purpose.

use std::fs;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::mounts::{MountPlan, PathContent};

/// The version of Landlock whose access rights are requested. Older kernels know fewer rights; see
/// [`MIN_ABI`].
const REQUESTED_ABI: ABI = ABI::V6;

/// The oldest version of Landlock that is secure enough. With older versions a program could
/// truncate a file that it cannot open.
const MIN_ABI: ABI = ABI::V3;

/// The device files that every sandboxed program may use.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Returns the newest version of Landlock among 1, 3, 5 and 6 that the kernel supports, or 0 if it
/// has no Landlock.
pub(super) fn landlock_version() -> u32 {
    let supports = |access: BitFlags<AccessFs>| {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(access);
        ruleset.and_then(Ruleset::create).is_ok()
    };
    let supports_scopes = || {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::from_all(ABI::V6));
        ruleset.and_then(Ruleset::create).is_ok()
    };
    if supports_scopes() {
        6
    } else if supports(AccessFs::from_all(ABI::V5)) {
        5
    } else if supports(AccessFs::from_all(MIN_ABI)) {
        3
    } else if supports(AccessFs::from_all(ABI::V1)) {
        1
    } else {
        0
    }
}

/// Restricts this process with Landlock rules alone, without namespaces, to the files that the
/// mount plan shows.
pub(super) fn restrict_files(plan: &MountPlan) -> Result<(), String> {
    let describe =
        |error: &dyn std::fmt::Display| format!("the rules of Landlock could not be set ({error})");
    if landlock_version() < MIN_ABI as u32 {
        return Err(format!(
            "Landlock is version {} here and {} is needed (Linux 6.2)",
            landlock_version(),
            MIN_ABI as u32
        ));
    }
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(REQUESTED_ABI))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(REQUESTED_ABI)))
        .and_then(Ruleset::create)
        .map_err(|error| describe(&error))?;
    let mut rules = LandlockRules {
        ruleset: Some(ruleset),
        plan,
    };
    for (path, content) in &plan.places {
        match content {
            PathContent::Read => rules.grant(path, AccessFs::from_read(REQUESTED_ABI))?,
            PathContent::Write => rules.grant(path, AccessFs::from_all(REQUESTED_ABI))?,
            // Add no rule for these kinds of content. Landlock has no mounts, so it cannot show a
            // directory at another place, and hidden or linked paths simply get no access.
            PathContent::WriteFrom(_)
            | PathContent::Empty
            | PathContent::AlreadyEmpty
            | PathContent::Unreadable
            | PathContent::Link(_) => {}
        }
    }
    // Allow reading `/proc`, which shows all processes but none of their secrets. The private data
    // of a process is protected by the kernel's tracing rules, which Landlock makes stricter.
    rules.add(Path::new("/proc"), AccessFs::from_read(REQUESTED_ABI))?;
    for device in DEVICES {
        if Path::new(device).exists() {
            rules.add(
                Path::new(device),
                AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
            )?;
        }
    }
    let ruleset = rules
        .ruleset
        .ok_or("the rules of Landlock are missing after an error")?;
    let status = ruleset.restrict_self().map_err(|error| describe(&error))?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        return Err("Landlock did not enforce its rules".to_owned());
    }
    Ok(())
}

/// Restricts signals and abstract unix sockets to processes inside the same sandbox. Returns
/// whether the kernel supports that.
pub(super) fn restrict_signals_and_sockets() -> Result<bool, String> {
    if landlock_version() < 6 {
        return Ok(false);
    }
    let ruleset = Ruleset::default()
        .scope(Scope::from_all(REQUESTED_ABI))
        .and_then(Ruleset::create);
    let done = ruleset.and_then(RulesetCreated::restrict_self);
    done.map(|_| true)
        .map_err(|error| format!("the scope of Landlock could not be set ({error})"))
}

struct LandlockRules<'a> {
    ruleset: Option<RulesetCreated>,
    plan: &'a MountPlan,
}

impl LandlockRules<'_> {
    /// Grants access to a directory, or to each part of it that is not hidden. The parts are
    /// granted one by one, because a Landlock rule cannot take away access that a rule for a parent
    /// directory has granted.
    fn grant(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        let contains_hidden = |path: &Path| {
            let mut places = self.plan.places.iter();
            places.any(|(planned, content)| {
                matches!(
                    content,
                    PathContent::Empty | PathContent::Unreadable | PathContent::WriteFrom(_)
                ) && planned.starts_with(path)
            })
        };
        if !contains_hidden(path) {
            return self.add(path, access);
        }
        let entries = fs::read_dir(path)
            .map_err(|error| format!("{} cannot be listed ({error})", path.display()))?;
        for entry in entries.flatten() {
            let is_planned = self
                .plan
                .places
                .iter()
                .any(|(planned, _)| *planned == entry.path());
            let is_link = entry.file_type().map_or(true, |kind| kind.is_symlink());
            if !is_planned && !is_link {
                self.grant(&entry.path(), access)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        let describe = |error: &dyn std::fmt::Display| {
            format!(
                "the rule for {} could not be added ({error})",
                path.display()
            )
        };
        // Skip a path that was removed or that is inaccessible anyway.
        let Ok(fd) = PathFd::new(path) else {
            return Ok(());
        };
        let is_dir = fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let access = if is_dir {
            access
        } else {
            access & AccessFs::from_file(REQUESTED_ABI)
        };
        let ruleset = self
            .ruleset
            .take()
            .ok_or("the rules of Landlock are missing after an error")?;
        self.ruleset = Some(
            ruleset
                .add_rule(PathBeneath::new(fd, access))
                .map_err(|error| describe(&error))?,
        );
        Ok(())
    }
}
