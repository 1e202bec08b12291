//! Who asks.

use leasehold_core::command;
use leasehold_core::{ClientId, Owner, Principal};
use leasehold_node::Operator;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a caller may do. Each role may do what the ones before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Looks.
    Viewer,
    /// Takes and gives back locks.
    Client,
    /// Sees and ends what others hold.
    Operator,
    /// Everything.
    Admin,
}

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Nothing: health.
    None,
    /// To look at locks.
    Read,
    /// To take and give back locks.
    Lock,
    /// To look at everybody's leases, and to end what others hold.
    Operate,
    /// To change settings.
    Administer,
}

impl Role {
    const WORDS: [(Self, &'static str); 4] = [
        (Self::Viewer, "viewer"),
        (Self::Client, "client"),
        (Self::Operator, "operator"),
        (Self::Admin, "admin"),
    ];

    /// The role as one word, as nodes tell it to each other.
    pub(crate) fn as_str(self) -> &'static str {
        Self::WORDS[self as usize].1
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, known)| *known == word).map(|(role, _)| *role)
    }

    pub(crate) fn may(self, permission: Permission) -> bool {
        match permission {
            Permission::None => true,
            Permission::Read => self >= Self::Viewer,
            Permission::Lock => self >= Self::Client,
            Permission::Operate => self >= Self::Operator,
            Permission::Administer => self >= Self::Admin,
        }
    }
}

/// The caller of one request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Who the service knows it to be.
    pub(crate) principal: Principal,
    /// What it may do.
    pub(crate) role: Role,
    /// Where it connects from.
    pub(crate) source: Option<SocketAddr>,
}

impl Caller {
    /// Development mode: nobody is asked for a name, and everybody may do everything.
    pub(crate) fn anonymous() -> Self {
        let principal = Principal::parse("anonymous").expect("the word is a legal name");
        Self { principal, role: Role::Admin, source: None }
    }

    /// The owner that this caller's client is.
    pub(crate) fn owner(&self, client: ClientId) -> Owner {
        Owner { principal: self.principal.clone(), client }
    }

    /// The caller as the audit names it.
    pub(crate) fn operator(&self, reason: Arc<str>) -> Operator {
        let source = self.source.map_or_else(|| "unknown".to_owned(), |from| from.to_string());
        Operator { by: self.principal.clone(), source: Arc::from(source), reason }
    }

    /// The caller as the lock rules compare it.
    pub(crate) fn acting_for(&self, client: Option<ClientId>) -> command::Caller {
        command::Caller { principal: self.principal.clone(), client }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_the_ones_before_it_may() {
        use Permission::{Administer, Lock, None, Operate, Read};
        for (role, may) in [
            (Role::Viewer, [true, true, false, false, false]),
            (Role::Client, [true, true, true, false, false]),
            (Role::Operator, [true, true, true, true, false]),
            (Role::Admin, [true, true, true, true, true]),
        ] {
            assert_eq!(
                [None, Read, Lock, Operate, Administer].map(|p| role.may(p)),
                may,
                "{role:?}"
            );
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert!(Role::parse("Admin").is_none());
    }
}
