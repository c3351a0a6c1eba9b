import type { Access } from '../api/operation.ts';
import { frozen } from '../base/frozen.ts';
import type { Role } from '../store/rows/people.ts';
import { Denial } from './denial.ts';
import type { HostAccess } from './host/operation.ts';

// What each role may do. What an operation opens is said by its own declaration, and that of every other path below:
// nothing of the console is answered that is in neither place.

/**
 * The scope: operations of an account, or of the host; `own`: questions that all visitors may ask about themselves.
 */
type Kind = Access | HostAccess | 'own';

/** What somebody who finds an open page must not do: the visitor proves who they are, if that was a while ago. */
const NEEDS_PROOF: readonly Kind[] = ['secrets', 'people'];

const MAY: Readonly<Record<Role, readonly Kind[]>> = {
  reader: ['own', 'numbers'],
  helper: ['own', 'numbers', 'mail'],
  owner: ['own', 'numbers', 'mail', 'content', 'settings', 'secrets'],
  operator: ['own', 'numbers', 'mail', 'settings', 'secrets', 'host', 'people'],
};

/**
 * Paths below /console that anybody may ask for: the page, its files, and the ways in. The last is every other path.
 */
export const OPEN_PATHS = [
  'GET /assets/*file',
  'GET /enter{/:token}',
  'POST /enter{/:token}',
  'POST /session',
  'HEAD /receiver{/*rest}',
  'POST /receiver{/*rest}',
  'GET /{*screen}',
] as const;

/**
 * Paths that only the console's own page asks, in a session, and what each opens; `operation`: what the named one does.
 */
export const SESSION_PATHS = [
  ['GET /me', 'own'],
  ['DELETE /session', 'own'],
  ['POST /password', 'own'],
  ['POST /confirm', 'own'],
  ['POST /factor', 'own'],
  ['POST /factor/on', 'own'],
  ['POST /factor/off', 'own'],
  ['GET /live', 'mail'],
  ['POST /test-message', 'settings'],
  ['POST /mail', 'content'],
  ['GET /mail/:grant/html', 'content'],
  ['GET /mail/:grant/links', 'content'],
  ['GET /mail/:grant/raw', 'content'],
  ['GET /mail/:grant/part/:number', 'content'],
  ['POST /call/:group/:name', 'operation'],
] as const satisfies readonly (readonly [string, Kind | 'operation'])[];

export type OpenPath = (typeof OPEN_PATHS)[number];
export type SessionPath = (typeof SESSION_PATHS)[number][0];

const NOT_OPERATORS = 'Operators cannot read mail on this host (console.operator_reads_mail in the settings).';

export type Permissions = ReturnType<typeof createPermissions>;

/** What a role may do. Operators see content only if the setting says so; `isLook` tells what is then noted. */
export function createPermissions(settings: { readonly operatorReadsMail: boolean }) {
  const may = (role: Role, kind: Kind) =>
    MAY[role].includes(kind) || (kind === 'content' && role === 'operator' && settings.operatorReadsMail);
  return frozen({
    may,
    /** Throws `Denial` unless the role may. */
    must(role: Role, kind: Kind): void {
      if (may(role, kind)) return;
      const ofOperator = role === 'operator' && kind === 'content';
      throw new Denial('Not_Allowed', ofOperator ? NOT_OPERATORS : `The ${role} role does not allow this.`);
    },
    /** Whether it shows the content of mail. */
    isLook: (kind: Kind): boolean => kind === 'content',
    /** Whether it needs a password, or a link, that was used a short while ago. */
    needsProof: (kind: Kind): boolean => NEEDS_PROOF.includes(kind),
  });
}
