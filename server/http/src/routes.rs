//! The one table: which route takes what, asks for which permission, and is served by whom.

use crate::accept::Gives;
use crate::answer::Answered;
use crate::app::App;
use crate::ask::Ask;
use crate::caller::Permission;
use crate::dispatch::{self, Place};
use crate::metrics::Metrics;
use crate::{about, audit, backup, clients, cluster, domains, force_release, grants};
use crate::{acquire, batch, cancel_wait, fence, health, leases, locks, release, renew};
use crate::{openapi, watch, why};
use actix_web::http::Method;
use actix_web::web::{self, ServiceConfig};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// In which order requests are kept when there are too many, and what a stopping node still takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Health and metrics: always answered.
    Ops,
    /// Makes room: release, cancel, end.
    Release,
    /// Keeps what is held.
    Renew,
    /// Asks for more.
    Acquire,
    /// Looks.
    Read,
}

/// What a route reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// Nothing; a body that comes nevertheless is not looked at.
    None,
    /// One operation.
    Single,
    /// Many operations.
    Bulk,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The node that was asked, about itself or from what it has.
    Here,
    /// The node that leads.
    Leader,
    /// The node that was asked if the query says `consistency=stale`, else the one that leads.
    Either,
}

/// A handler, ready to be called.
pub(crate) type Handler = fn(Ask) -> BoxFuture<'static, Answered>;

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The label in metrics; rows with the same name are the same thing under two addresses.
    pub(crate) name: &'static str,
    pub(crate) permission: Permission,
    pub(crate) class: Class,
    pub(crate) body: Body,
    pub(crate) answers: Answers,
    pub(crate) handler: Handler,
}

impl Route {
    pub(crate) fn gives(&self) -> Gives {
        match self.name {
            "watch" => Gives::Events,
            "backup" => Gives::File,
            _ => Gives::Json,
        }
    }
}

macro_rules! table {
    ($($method:ident $path:literal $name:literal $permission:ident $class:ident $body:ident $answers:ident => $handler:path;)+) => {
        &[$(Route {
            method: Method::$method,
            path: $path,
            name: $name,
            permission: Permission::$permission,
            class: Class::$class,
            body: Body::$body,
            answers: Answers::$answers,
            handler: |ask| Box::pin($handler(ask)),
        },)+]
    };
}

/// Rows of the same path stand together. The router looks from the top, so the verbs come first.
pub(crate) static TABLE: &[Route] = table! {
    POST   "/v1/acquire-lock"           "acquire-lock"    Lock    Acquire Single Leader => acquire::post;
    POST   "/v1/release-lock"           "release-lock"    Lock    Release Single Leader => release::post;
    POST   "/v1/renew-lock"             "renew-lock"      Lock    Renew   Single Leader => renew::post;
    POST   "/acquire-lock"              "acquire-lock"    Lock    Acquire Single Leader => acquire::post;
    POST   "/release-lock"              "release-lock"    Lock    Release Single Leader => release::post;
    POST   "/renew-lock"                "renew-lock"      Lock    Renew   Single Leader => renew::post;
    POST   "/v1/leases/keep-alive"      "keep-alive-many" Lock    Renew   Bulk   Leader => leases::keep_alive_many;
    POST   "/v1/fence/check"            "fence-check"     Read    Read    Single Leader => fence::check;
    POST   "/v1/batch"                  "batch"           Lock    Acquire Bulk   Leader => batch::post;
    POST   "/v1/cancel-wait"            "cancel-wait"     Lock    Release Single Leader => cancel_wait::post;
    GET    "/v1/lock"                   "lock"            Read    Read    None   Either => locks::one;
    GET    "/v1/lock/why"               "why"             Read    Read    None   Leader => why::get;
    GET    "/v1/locks"                  "locks"           Read    Read    None   Either => locks::list;
    GET    "/v1/watch"                  "watch"           Read    Read    None   Here   => watch::get;
    GET    "/v1/grants"                 "grants"          Read    Read    None   Leader => grants::list;
    POST   "/v1/lock/force-release"     "force-release"   Operate Release Single Leader => force_release::post;
    POST   "/v1/leases"                 "open-lease"      Lock    Acquire Single Leader => leases::open;
    GET    "/v1/leases"                 "leases"          Operate Read    None   Either => leases::list;
    GET    "/v1/openapi.json"           "openapi"         None    Read    None   Here   => openapi::get;
    GET    "/v1/domains"                "domains"         Read    Read    None   Leader => domains::get;
    PUT    "/v1/domains"                "set-domain"      Administer Acquire Single Leader => domains::put;
    DELETE "/v1/domains"                "reset-domain"    Administer Acquire None Leader => domains::delete;
    GET    "/v1/cluster"                "cluster"         Operate Read    None   Here   => cluster::get;
    POST   "/v1/cluster/add"            "add-node"        Administer Release Single Leader => cluster::add;
    POST   "/v1/cluster/promote"        "promote-node"    Administer Release Single Leader => cluster::promote;
    POST   "/v1/cluster/remove"         "remove-node"     Administer Release Single Leader => cluster::remove;
    POST   "/v1/cluster/transfer"       "transfer-leadership" Operate Release Single Leader => cluster::transfer;
    GET    "/v1/audit"                  "audit"           Operate Read    None   Leader => audit::list;
    GET    "/v1/backup"                 "backup"          Operate Read    None   Here   => backup::get;
    GET    "/v1/stats"                  "stats"           Read    Read    None   Here   => about::stats;
    GET    "/v1/attention"              "attention"       Read    Read    None   Here   => about::attention;
    GET    "/v1/config"                 "config"          Operate Read    None   Here   => about::config;
    GET    "/v1/clients"                "clients"         Operate Read    None   Either => clients::list;
    GET    "/livez"                     "livez"           None    Ops     None   Here   => health::live;
    GET    "/readyz"                    "readyz"          None    Ops     None   Here   => health::ready_to_serve;
    GET    "/healthz"                   "healthz"         None    Ops     None   Here   => health::live;
    GET    "/metrics"                   "metrics"         None    Ops     None   Here   => health::metrics;
    POST   "/v1/leases/{id}/keep-alive" "keep-alive"      Lock    Renew   Single Leader => leases::keep_alive;
    GET    "/v1/leases/{id}"            "lease"           Lock    Read    None   Leader => leases::get;
    DELETE "/v1/leases/{id}"            "end-lease"       Lock    Release None   Leader => leases::end;
};

/// Which routes a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    Everything,
    OnlyApi,
    OnlyOps,
}

impl Serves {
    fn takes(self, route: &Route) -> bool {
        match self {
            Self::Everything => true,
            Self::OnlyApi => route.class != Class::Ops,
            Self::OnlyOps => route.class == Class::Ops,
        }
    }
}

/// The places of a listener, with their counters looked up.
pub(crate) fn places(serves: Serves, metrics: &Metrics) -> Vec<Arc<Place>> {
    TABLE
        .chunk_by(|a, b| a.path == b.path)
        .filter(|rows| rows.iter().all(|row| serves.takes(row)))
        .map(|rows| Arc::new(Place::new(rows, metrics)))
        .collect()
}

/// Puts the places into an application.
pub(crate) fn configure(app: &Arc<App>, places: &[Arc<Place>], config: &mut ServiceConfig) {
    for place in places {
        let (shared, app) = (Arc::clone(place), Arc::clone(app));
        let serve = move |http, payload: web::Payload| {
            dispatch::dispatch(Arc::clone(&app), Arc::clone(&shared), http, payload.into_inner())
        };
        config.service(web::resource(place.path()).to(serve));
    }
    let (app, nowhere) = (Arc::clone(app), Arc::new(Place::new(&[], &app.metrics)));
    config.default_service(web::to(move |http, payload: web::Payload| {
        dispatch::dispatch(Arc::clone(&app), Arc::clone(&nowhere), http, payload.into_inner())
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_of_one_path_stand_together_and_differ_in_method() {
        let mut paths = BTreeSet::new();
        for rows in TABLE.chunk_by(|a, b| a.path == b.path) {
            assert!(paths.insert(rows[0].path), "{} stands in two places", rows[0].path);
            let methods: BTreeSet<&str> = rows.iter().map(|row| row.method.as_str()).collect();
            assert_eq!(methods.len(), rows.len(), "{}", rows[0].path);
        }
    }

    #[test]
    fn only_health_and_the_description_ask_for_no_permission() {
        for route in TABLE {
            let open = route.permission == Permission::None;
            let expected = route.class == Class::Ops || route.name == "openapi";
            assert_eq!(open, expected, "{}", route.path);
            assert!(route.method != Method::GET || route.body == Body::None, "{}", route.path);
        }
    }

    #[test]
    fn both_names_of_a_verb_are_the_same_thing() {
        for alias in TABLE.iter().filter(|route| route.path.ends_with("-lock")) {
            let twins = TABLE.iter().filter(|route| route.name == alias.name).collect::<Vec<_>>();
            assert_eq!(twins.len(), 2, "{}", alias.path);
            assert!(
                twins
                    .iter()
                    .all(|twin| twin.class == alias.class && twin.permission == alias.permission)
            );
        }
    }
}
