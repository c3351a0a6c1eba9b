/** A listening socket that the service manager opened for us (sd_listen_fds(3)). */
export interface InheritedSocket {
  /** FileDescriptorName= of its unit; "unknown" when the manager gave no names. */
  readonly name: string;
  /** The descriptor, for `server.listen({ fd })`. */
  readonly fd: number;
}

/** What a start was handed cannot be made sense of: starting on other ports instead would surprise. */
export class SocketFault extends Error {
  override readonly name = 'SocketFault';
}

/** Descriptors begin after standard input, output and error (SD_LISTEN_FDS_START). */
const FIRST_FD = 3;

/** Far above any unit of ours; a larger number is garbage, and must not become a loop. */
const MOST = 64;

/** FileDescriptorName= allows 255 printable ASCII characters, the colon excepted. */
const NAME = /^[ -9;-~]{0,255}$/;

function countOf(text: string | undefined): number {
  if (text === undefined) return 0;
  if (!/^\d{1,4}$/.test(text) || Number(text) > MOST) throw new SocketFault('LISTEN_FDS is not a number of sockets');
  return Number(text);
}

function namesOf(text: string | undefined, count: number): readonly string[] {
  if (text === undefined) return Array.from({ length: count }, () => 'unknown');
  const names = text.split(':');
  if (names.length !== count) throw new SocketFault(`LISTEN_FDNAMES has ${names.length} names for ${count} sockets`);
  if (!names.every((name) => NAME.test(name))) throw new SocketFault('LISTEN_FDNAMES has a name that no unit can give');
  return names;
}

/**
 * Reads which sockets were handed to the process `pid` in `env` (LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES).
 * Empty when nothing was, or when it was meant for another process: the variables are inherited by children,
 * the descriptors are not. Throws SocketFault when they are ours but malformed.
 */
export function inheritedSockets(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): readonly InheritedSocket[] {
  if (env['LISTEN_PID'] !== String(pid)) return [];
  const count = countOf(env['LISTEN_FDS']);
  if (count === 0) return [];
  return namesOf(env['LISTEN_FDNAMES'], count).map((name, index) => ({ name, fd: FIRST_FD + index }));
}
