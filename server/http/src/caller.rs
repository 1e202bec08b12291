//! Who asks.

use leasehold_core::command;
use leasehold_core::{ClientId, Owner, Principal};
use std::net::SocketAddr;

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
    /// To look at everybody's leases.
    Operate,
}

impl Role {
    pub(crate) fn may(self, permission: Permission) -> bool {
        match permission {
            Permission::None => true,
            Permission::Read => self >= Self::Viewer,
            Permission::Lock => self >= Self::Client,
            Permission::Operate => self >= Self::Operator,
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
    #[expect(dead_code, reason = "goes on with forwarded requests, and into the audit")]
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
        use Permission::{Lock, None, Operate, Read};
        for (role, may) in [
            (Role::Viewer, [true, true, false, false]),
            (Role::Client, [true, true, true, false]),
            (Role::Operator, [true, true, true, true]),
            (Role::Admin, [true, true, true, true]),
        ] {
            assert_eq!([None, Read, Lock, Operate].map(|p| role.may(p)), may, "{role:?}");
        }
    }
}
