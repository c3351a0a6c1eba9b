import type { Row } from '../driver/port.ts';
import { collection } from './collection.ts';

/** The certificate that this service gets for one of its names by ACME. `id` is the name, in lower-case A-labels. */
export interface CertificateRow extends Row {
  /** The chain, with the certificate first, and its key (PKCS #8), both PEM; null: none was issued yet. */
  readonly chain: string | null;
  readonly key: string | null;
  /** The directory of the authority that issued it. Unset if none was issued, or by an earlier version. */
  readonly authority?: string;
  readonly issuedAt: Date | null;
  readonly notAfter: Date | null;
  /** When it is ordered next. A host claims the order by moving this time forward. */
  readonly dueAt: Date;
  /** Failed orders since the last certificate. */
  readonly failures: number;
  /** Why the last order failed; null if it succeeded. */
  readonly error: string | null;
  readonly failedAt: Date | null;
}

export const certificates = collection<CertificateRow>()({
  name: 'certificates',
  access: 'none',
  indexes: [['dueAt']],
  dates: ['issuedAt', 'notAfter', 'dueAt', 'failedAt'],
  upkeep: true,
});

/** The answer to a challenge of the certificate authority, which may reach any host. `id` is its token. */
interface AcmeChallengeRow extends Row {
  readonly answer: string;
  readonly until: Date;
}

export const acmeChallenges = collection<AcmeChallengeRow>()({
  name: 'acme_challenges',
  access: 'none',
  indexes: [['until']],
  dates: ['until'],
  upkeep: true,
});
