/** An open connection (or one that its first use will open) that serves one request at a time. */
export interface Connection {
  /** Ends it at once, whatever it is doing. */
  destroy(): void;
}

/** Connections kept for the next request to the same origin. */
export interface Connections<C extends Connection> {
  /** The one that was used last, or a new one. Idle connections to another set of addresses than `addresses` are closed. */
  take(origin: string, addresses: readonly string[]): { readonly connection: C; readonly used: boolean };
  /** As `take`, but never one that was used before. */
  fresh(origin: string, addresses: readonly string[]): C;
  /** Keeps it for the next `take`, unless its addresses went out of date meanwhile or enough are kept. */
  giveBack(connection: C): void;
  /** Closes it, in use or not. */
  drop(connection: C): void;
  /** The other end closed it: forgets it if nobody uses it. */
  closed(connection: C): void;
  /** Closes everything, in use or not. */
  destroy(): void;
}

/** The connections to one origin that were made to one checked set of addresses. */
interface Group<C> {
  readonly origin: string;
  readonly addresses: string;
  readonly open: () => C;
  readonly idle: C[];
  /** Those in use included. */
  size: number;
}

// Idle connections to all origins together; each holds a file descriptor, and a busy origin makes new ones in a moment.
const KEEP_IN_ALL = 512;

/**
 * Keeps at most `keep` idle connections for an origin. `opener` is called once for an origin and a set of checked addresses; what
 * it answers opens connections to these addresses and to no others.
 */
export function createConnections<C extends Connection>(
  keep: number,
  opener: (origin: string, addresses: readonly string[]) => () => C,
): Connections<C> {
  const groups = new Map<string, Group<C>>();
  const owners = new Map<C, Group<C>>();
  let idle = 0;

  function groupOf(origin: string, addresses: readonly string[]): Group<C> {
    const joined = addresses.length === 1 ? (addresses[0] ?? '') : [...addresses].sort().join(' ');
    const group = groups.get(origin);
    if (group?.addresses === joined) return group;
    // Those in use end with their request: giveBack sees that their group is no longer the one of the origin.
    if (group) for (const connection of [...group.idle]) drop(connection);
    const made = { origin, addresses: joined, open: opener(origin, addresses), idle: [], size: 0 };
    groups.set(origin, made);
    return made;
  }

  function open(group: Group<C>): C {
    const connection = group.open();
    owners.set(connection, group);
    group.size++;
    return connection;
  }

  function drop(connection: C): void {
    const group = owners.get(connection);
    if (!group) return;
    owners.delete(connection);
    group.size--;
    if (forgetIdle(group, connection)) idle--;
    if (group.size === 0 && groups.get(group.origin) === group) groups.delete(group.origin);
    connection.destroy();
  }

  return Object.freeze({
    take(origin: string, addresses: readonly string[]) {
      const group = groupOf(origin, addresses);
      const connection = group.idle.pop();
      if (!connection) return { connection: open(group), used: false };
      idle--;
      return { connection, used: true };
    },
    fresh: (origin: string, addresses: readonly string[]) => open(groupOf(origin, addresses)),
    giveBack(connection: C) {
      const group = owners.get(connection);
      if (!group || groups.get(group.origin) !== group || group.idle.length >= keep || idle >= KEEP_IN_ALL)
        return drop(connection);
      group.idle.push(connection);
      idle++;
    },
    drop,
    closed(connection: C) {
      if (owners.get(connection)?.idle.includes(connection)) drop(connection);
    },
    destroy() {
      for (const connection of [...owners.keys()]) drop(connection);
    },
  });
}

function forgetIdle<C>(group: Group<C>, connection: C): boolean {
  const at = group.idle.indexOf(connection);
  if (at < 0) return false;
  group.idle.splice(at, 1);
  return true;
}
