// Groups of entities that are connected more closely with each other than with the rest.

"use strict";

const MENTIONED = 0.35; // what "mentions" weighs beside a relation, as where entities are placed
const PASSES = 12;

/** The group of each entity, a number, the largest group first: Louvain's method (Blondel et al., 2008), always in the same order. */
function groupsOf({ nodes, edges }) {
  const place = new Map(nodes.map((node, index) => [node, index]));
  let near = nodes.map(() => new Map());
  const join = (one, other, weight) => near[one].set(other, (near[one].get(other) ?? 0) + weight);
  for (const { from, to, predicate } of edges) {
    if (from === to) continue;
    const weight = predicate ? 1 : MENTIONED;
    join(place.get(from), place.get(to), weight);
    join(place.get(to), place.get(from), weight);
  }
  let found = nodes.map((_, index) => index);
  for (;;) {
    const moved = settled(near);
    const numbers = new Map([...new Set(moved)].map((each, index) => [each, index]));
    const group = moved.map((each) => numbers.get(each));
    found = found.map((each) => group[each]);
    if (numbers.size === near.length) break;
    near = merged(near, group, numbers.size);
  }
  const sizes = new Map();
  for (const each of found) sizes.set(each, (sizes.get(each) ?? 0) + 1);
  const order = [...sizes].sort(([one, a], [other, b]) => b - a || one - other).map(([each]) => each);
  const rank = new Map(order.map((each, index) => [each, index]));
  return found.map((each) => rank.get(each));
}

/** Moves each node into the group of its neighbours where it gains most, until few move. */
function settled(near) {
  const degree = near.map((ends) => [...ends.values()].reduce((sum, weight) => sum + weight, 0));
  const all = degree.reduce((sum, each) => sum + each, 0) || 1;
  const group = near.map((_, index) => index);
  const within = [...degree];
  for (let pass = 0; pass < PASSES; pass += 1) {
    let moves = 0;
    near.forEach((ends, node) => {
      const own = group[node];
      const drawn = new Map([[own, 0]]);
      for (const [end, weight] of ends) if (end !== node) drawn.set(group[end], (drawn.get(group[end]) ?? 0) + weight);
      within[own] -= degree[node];
      let best = own;
      let most = drawn.get(own) - degree[node] * within[own] / all;
      for (const [to, weight] of drawn) {
        const gain = weight - degree[node] * within[to] / all;
        if (gain > most + 1e-9) [best, most] = [to, gain];
      }
      within[best] += degree[node];
      group[node] = best;
      moves += best !== own;
    });
    if (moves * 200 <= near.length) break;
  }
  return group;
}

/** Each group as one node, with what connects the groups, and in it what connects its members. */
function merged(near, group, count) {
  const made = Array.from({ length: count }, () => new Map());
  near.forEach((ends, node) => {
    for (const [end, weight] of ends) made[group[node]].set(group[end], (made[group[node]].get(group[end]) ?? 0) + weight);
  });
  return made;
}
