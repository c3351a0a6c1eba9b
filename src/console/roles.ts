import type { Access } from '../api/operation.ts';
import { frozen } from '../base/frozen.ts';
import type { Role } from '../store/rows/people.ts';
import { Denial } from './denial.ts';
import type { HostAccess } from './host/operation.ts';

// The permissions of each role. An operation declares the permission that it needs; those of other paths are below.
// The console answers no path without one.

/** A permission: of an operation of an account, or of the host; `own`: the visitor's own data. */
type Kind = Access | HostAccess | 'own';

/** Permissions for which the visitor must have confirmed their identity recently: the page may have been left open. */
const NEEDS_PROOF: readonly Kind[] = ['secrets', 'people'];

const MAY: Readonly<Record<Role, readonly Kind[]>> = {
  reader: ['own', 'numbers'],
  helper: ['own', 'numbers', 'mail'],
  owner: ['own', 'numbers', 'mail', 'content', 'settings', 'secrets'],
  operator: ['own', 'numbers', 'mail', 'settings', 'secrets', 'host', 'people'],
};

/** Public paths below /console: the page, its files, and sign-in. The last one matches all other paths. */
export const OPEN_PATHS = [
  'GET /assets/*file',
  'GET /enter{/:token}',
  'POST /enter{/:token}',
  'POST /session',
  'HEAD /receiver{/*rest}',
  'POST /receiver{/*rest}',
  'GET /{*screen}',
] as const;

/** Paths for the console's own page, in a session, with the permission of each; `operation`: that of the operation. */
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

/** Permissions by role. Operators see content only if the setting says so, and each access is then recorded. */
export function createPermissions(settings: { readonly operatorReadsMail: boolean }) {
  const may = (role: Role, kind: Kind) =>
    MAY[role].includes(kind) || (kind === 'content' && role === 'operator' && settings.operatorReadsMail);
  return frozen({
    may,
    /** Throws `Denial` if the role does not have the permission. */
    must(role: Role, kind: Kind): void {
      if (may(role, kind)) return;
      const ofOperator = role === 'operator' && kind === 'content';
      throw new Denial('Not_Allowed', ofOperator ? NOT_OPERATORS : `The ${role} role does not allow this.`);
    },
    /** Whether it shows the content of mail, so that operators' access is recorded. */
    showsContent: (kind: Kind): boolean => kind === 'content',
    /** Whether it needs a sign-in or confirmation within the last minutes. */
    needsProof: (kind: Kind): boolean => NEEDS_PROOF.includes(kind),
  });
}
