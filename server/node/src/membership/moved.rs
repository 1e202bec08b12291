//! Which addresses of members have changed.

use crate::types::Member;
use std::collections::{BTreeMap, BTreeSet};

/// Members that are elsewhere than `entered` says, by what they `told`. An address that another
/// member has, and has not left in the same step, is entered for nobody: two that changed places
/// are entered together.
pub(super) fn moved(
    entered: &BTreeMap<u64, Member>,
    mut told: BTreeMap<u64, Member>,
) -> BTreeMap<u64, Member> {
    told.retain(|id, now| entered.get(id).is_some_and(|known| is_news(known, now)));
    loop {
        // With each that is left out, its old address is taken again.
        let taken = taken_twice(entered, &told);
        if taken.is_empty() {
            return told;
        }
        told.retain(|id, _| !taken.contains(id));
    }
}

fn is_news(known: &Member, now: &Member) -> bool {
    // Outgoing connections work without a listener, so even a leader may have lost its.
    let unknown = now.peer.is_empty() && !known.peer.is_empty();
    known.incarnation == now.incarnation && known != now && !unknown
}

/// Those who would move to where another member is then.
fn taken_twice(entered: &BTreeMap<u64, Member>, moved: &BTreeMap<u64, Member>) -> BTreeSet<u64> {
    let then = || entered.iter().map(|(id, known)| (*id, moved.get(id).unwrap_or(known)));
    let moves = |(id, now): &(&u64, &Member)| entered.get(*id).is_some_and(|k| k.peer != now.peer);
    let taken = |id: u64, at: &str| then().any(|(other, one)| other != id && one.peer == at);
    let moving = moved.iter().filter(moves);
    moving.filter(|(id, now)| taken(**id, &now.peer)).map(|(id, _)| *id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &[(u64, &str)]) -> BTreeMap<u64, Member> {
        let member = |id: u64, peer: &str| {
            let incarnation = u128::from(id) << 100;
            (id, Member { http: "http".to_owned(), peer: peer.to_owned(), incarnation })
        };
        places.iter().map(|(id, peer)| member(*id, peer)).collect()
    }

    fn ids(moved: &BTreeMap<u64, Member>) -> Vec<u64> {
        moved.keys().copied().collect()
    }

    #[test]
    fn those_that_changed_places_are_entered_together() {
        let entered = at(&[(1, "a"), (2, "b"), (3, "c")]);
        let told = at(&[(1, "b"), (2, "a"), (3, "c")]);
        assert_eq!(ids(&moved(&entered, told)), [1, 2]);
        let told = at(&[(1, "b"), (2, "c"), (3, "a")]);
        assert_eq!(ids(&moved(&entered, told)), [1, 2, 3]);
        let told = at(&[(1, "x"), (2, "y"), (3, "z")]);
        assert_eq!(ids(&moved(&entered, told)), [1, 2, 3]);
    }

    #[test]
    fn a_place_that_its_owner_has_not_left_is_entered_for_nobody_else() {
        let entered = at(&[(1, "a"), (2, "b"), (3, "c")]);
        assert_eq!(ids(&moved(&entered, at(&[(1, "b"), (3, "z")]))), [3]);
        // The second waits for the third, and the first for the second.
        assert_eq!(ids(&moved(&entered, at(&[(1, "b"), (2, "c")]))), [0; 0]);
        assert_eq!(ids(&moved(&entered, at(&[(1, "x"), (2, "x")]))), [0; 0]);
    }

    #[test]
    fn only_what_is_new_is_entered_and_only_of_the_same_life() {
        let entered = at(&[(1, "a"), (2, "b")]);
        assert_eq!(ids(&moved(&entered, at(&[(1, "a"), (2, ""), (4, "x")]))), [0; 0]);
        let mut told = at(&[(1, "x"), (2, "b")]);
        told.entry(1).and_modify(|member| member.incarnation += 1);
        told.entry(2).and_modify(|member| member.http = "elsewhere".to_owned());
        assert_eq!(ids(&moved(&entered, told)), [2], "clients find it elsewhere");
    }
}
