import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { countCode, forgetWrongCodes, isLocked, type PersonRow } from '../store/rows/people.ts';
import type { Store } from '../store/store.ts';

// The second factor: TOTP codes of an authenticator app (RFC 6238), and recovery codes for a lost app. Every app
// supports SHA-1, six digits and 30 seconds.

const STEP_MS = 30_000;
const DIGITS = 6;
const CODE = /^\d{6}$/;
/** 160 bits, as RFC 4226 recommends (section 4). */
const SECRET_BYTES = 20;
/** 50 bits each: out of reach at 20 tries in 15 minutes. */
const RECOVERY = { codes: 10, letters: 10 } as const;

/** Codes that a person enters after the password. Each is valid once. */
export function createSecondFactor(deps: { readonly store: Pick<Store, 'people'>; readonly clock: Clock }) {
  const { clock } = deps;
  const { people } = deps.store;

  /** The step of a code: the current one, or the one before or after, because clocks differ. */
  function stepOf(secret: string, code: string): number | undefined {
    const now = Math.floor(clock.now() / STEP_MS);
    return [now, now - 1, now + 1].find((step) => isSame(totp(secret, step), code));
  }

  /** Each step is accepted once, so that a code seen over a shoulder opens no second session. */
  async function useStep({ id, factor }: PersonRow, code: string): Promise<boolean> {
    const step = factor ? stepOf(factor, code) : undefined;
    if (step === undefined || !factor) return false;
    const unused = { id, factor, factorStep: { range: { lt: step } } };
    return (await people.change(unused, { factorStep: step })) !== undefined;
  }

  async function useRecovery({ id, recoveryCodes }: PersonRow, code: string): Promise<boolean> {
    if (!recoveryCodes) return false;
    const left = recoveryCodes.split(' ');
    const used = hashOf(code);
    if (!left.includes(used)) return false;
    const others = left.filter((one) => one !== used).join(' ');
    return (await people.change({ id, recoveryCodes }, { recoveryCodes: others })) !== undefined;
  }

  return frozen({
    /**
     * Uses up a code of the app, or a recovery code. `locks`: it was wrong, and the last allowed try; `locked`: no
     * tries are left.
     */
    async use(person: PersonRow, given: string): Promise<'right' | 'wrong' | 'locks' | 'locked'> {
      const counted = await countCode(deps.store, person.id);
      if (!counted) return 'locked';
      const code = given.replaceAll(/[\s-]/g, '').toLowerCase();
      const isRight = CODE.test(code) ? await useStep(person, code) : await useRecovery(person, code);
      if (!isRight) return isLocked(counted) ? 'locks' : 'wrong';
      await forgetWrongCodes(deps.store, person.id);
      return 'right';
    },
    /** Returns a new secret for the app. It takes effect when `turnOn` gets a code of it. */
    async offer({ id }: PersonRow): Promise<string> {
      const secret = toBase32(randomBytes(SECRET_BYTES));
      await people.change({ id }, { nextFactor: secret });
      return secret;
    },
    /** Returns the recovery codes, which are never shown again; undefined if the code does not match the secret. */
    async turnOn({ id, nextFactor }: PersonRow, given: string): Promise<readonly string[] | undefined> {
      const code = given.replaceAll(/\s/g, '');
      const step = nextFactor && CODE.test(code) ? stepOf(nextFactor, code) : undefined;
      if (!nextFactor || step === undefined) return undefined;
      const codes = Array.from({ length: RECOVERY.codes }, newRecoveryCode);
      const row = await people.change(
        { id, nextFactor },
        { factor: nextFactor, factorStep: step, nextFactor: null, recoveryCodes: codes.map(hashOf).join(' ') },
      );
      return row && codes.map((one) => `${one.slice(0, RECOVERY.letters / 2)}-${one.slice(RECOVERY.letters / 2)}`);
    },
  });
}

export function recoveryCodesLeft({ recoveryCodes }: PersonRow): number {
  return recoveryCodes ? recoveryCodes.split(' ').length : 0;
}

/** The URL by which an authenticator app adds the secret (Key URI format). */
export function secretUrl(secret: string, name: string, hostname: string): string {
  const issuer = `Postern ${hostname}`;
  const label = `${encodeURIComponent(issuer)}:${encodeURIComponent(name)}`;
  return `otpauth://totp/${label}?secret=${secret}&issuer=${encodeURIComponent(issuer)}`;
}

/** The code of a base32 secret for the step since 1970 (RFC 4226 section 5.3). */
export function totp(secret: string, step: number): string {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const mac = createHmac('sha1', fromBase32(secret)).update(counter).digest();
  const offset = (mac.at(-1) ?? 0) & 0xf;
  const number = mac.readUInt32BE(offset) & 0x7fffffff;
  return String(number % 10 ** DIGITS).padStart(DIGITS, '0');
}

const isSame = (one: string, other: string): boolean =>
  one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other));

const hashOf = (code: string): string => createHash('sha256').update(code).digest('hex');

const newRecoveryCode = (): string => toBase32(randomBytes(RECOVERY.letters)).slice(0, RECOVERY.letters).toLowerCase();

const BASE32 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** RFC 4648 section 6, without padding. */
function toBase32(bytes: Uint8Array): string {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  return (bits.match(/.{1,5}/g) ?? []).map((five) => BASE32[Number.parseInt(five.padEnd(5, '0'), 2)]).join('');
}

function fromBase32(text: string): Buffer {
  const bits = [...text].map((letter) => BASE32.indexOf(letter).toString(2).padStart(5, '0')).join('');
  return Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
}
