import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { DkimVerifier } from 'mailauth/lib/dkim/dkim-verifier.js';
import { getPublicKey, toALabel } from 'mailauth/lib/tools.js';
import { createPublicKeys, createSignatureReader, type PublicKey } from '../../src/inbound/verdicts/signatures.ts';
import { parseHeaderSection } from '../../src/mail/mime/header-section.ts';

import { createTestClock } from '../support/clock.ts';
import { NOW, ODDITIES, type OddMessage, oddMessage, RECORDS } from '../support/interop/odd-signatures.ts';
import { randomFrom } from '../support/random-text.ts';
import { tempDir } from '../support/temp.ts';

// Debian's packages belong to Debian's Python; the first python3 on the PATH may be another.
const PYTHON = '/usr/bin/python3';
const PROGRAMS = new URL('../support/interop/', import.meta.url).pathname;
const COUNT = 3000;

/** Which of the messages a verifier takes for validly signed. */
interface Verifier {
  readonly missing: () => boolean;
  readonly verify: (messages: readonly OddMessage[]) => Promise<readonly boolean[]>;
  /** Oddities that it judges otherwise than RFC 6376 does, and why. */
  readonly otherwise: Readonly<Record<string, string>>;
}

async function lookUp(name: string): Promise<unknown[]> {
  const text = RECORDS[name.toLowerCase()];
  if (text === undefined) throw Object.assign(new Error(name), { code: 'ENOTFOUND' });
  return [[text]];
}

async function ours(messages: readonly OddMessage[]): Promise<boolean[]> {
  const read = createSignatureReader(createTestClock(NOW * 1000));
  return Promise.all(
    messages.map(
      async ({ raw }) =>
        (await read(parseHeaderSection(raw), { kind: 'memory', bytes: raw }, [], lookUp as never)).dkim.valid,
    ),
  );
}

async function mailauth(messages: readonly OddMessage[]): Promise<boolean[]> {
  const keysOf = createPublicKeys(getPublicKey<PublicKey>, toALabel);
  return Promise.all(
    messages.map(async ({ raw }) => {
      const verifier = new DkimVerifier({ minBitLength: 1024, curTime: new Date(NOW * 1000), strict: true });
      verifier.keyCache = keysOf(lookUp);
      try {
        await verifier.writeAsync(raw);
        await verifier.finish();
      } catch {
        return false;
      }
      return verifier.results.some(({ status }) => status.result === 'pass' && !status.underSized);
    }),
  );
}

/** A program that reads all messages at once from its input. */
function program(command: string, ...args: string[]) {
  return async (messages: readonly OddMessage[]): Promise<boolean[]> => {
    const input = JSON.stringify({ messages: messages.map(({ raw }) => raw.toString('base64')), records: RECORDS });
    const { stdout, stderr, status } = spawnSync(command, args, {
      input,
      encoding: 'utf8',
      timeout: 120_000,
      maxBuffer: 64 * 1024 * 1024,
    });
    if (status !== 0) throw new Error(stderr);
    return JSON.parse(stdout).map(Boolean);
  };
}

async function opendkim(messages: readonly OddMessage[]): Promise<boolean[]> {
  const dir = await tempDir();
  await writeFile(
    join(dir, 'keys'),
    Object.entries(RECORDS)
      .map((record) => `${record.join(' ')}\n`)
      .join(''),
  );
  await writeFile(join(dir, 'conf'), `Mode v\nSyslog no\nTestPublicKeys ${join(dir, 'keys')}\nMinimumKeyBits 1024\n`);
  await Promise.all(messages.map(({ raw }, index) => writeFile(join(dir, String(index)), raw)));
  const valid = new Set<number>();
  for (let from = 0; from < messages.length; ) {
    const names = messages.slice(from, from + 500).map((_, index) => from + index);
    const { stdout } = spawnSync('/usr/sbin/opendkim', ['-x', 'conf', '-t', names.join(',')], {
      cwd: dir,
      encoding: 'latin1',
      timeout: 120_000,
      maxBuffer: 64 * 1024 * 1024,
    });
    for (const [, name] of stdout.matchAll(/^opendkim: (\d+): verification \(.*\) succeeded$/gm))
      valid.add(Number(name));
    // It ends at a signature that it cannot read, without a word.
    const read = [...stdout.matchAll(/^opendkim: (\d+): /gm)].map(([, name]) => Number(name));
    from = Math.min(Math.max(from - 1, ...read) + 2, from + names.length);
  }
  return messages.map((_, index) => valid.has(index));
}

const ANY_NAMES = 'it takes white space and empty names out of h=, where section 3.5 has names and colons';
const MAILAUTH = {
  'underscores in s= and d=':
    'it goes by the letter of section 3.5, which has none; they are in use, and the DNS has no objection',
  'h= with a name of nothing': ANY_NAMES,
  'h= with white space in a name': ANY_NAMES,
  'b= with what is no base64': 'it passes over letters that are none of base64 (section 2.10)',
};
const LENIENT = 'it looks at fewer things than section 6.1.1 asks for';
const PYTHON_DKIM = {
  'q= with another method': 'it wants dns/txt and nothing else, where section 3.5 has a list',
  'a key record: sha1': 'it does not look at h= of the key (section 3.6.1)',
  'i= below a domain whose key forbids it': 'it does not look at t=s of the key (section 3.6.1)',
  'a tag name with a hyphen': LENIENT,
  'From is not signed': LENIENT,
  'h= is empty': LENIENT,
  'h= with a name of nothing': LENIENT,
  'l= less than the body': 'it leaves it to who asks whether a tail without a signature matters (section 8.2)',
};
const MAIL_DKIM = {
  'an Ed25519 key': "Debian's version does not know RFC 8463",
  'a body without a last line end': 'it is handed lines, and this is none',
  'an empty tag': LENIENT,
  'a tag twice': LENIENT,
  'a tag name with a hyphen': LENIENT,
  'no v=': LENIENT,
  'no bh=': LENIENT,
  'From is not signed': LENIENT,
  'h= is empty': LENIENT,
  'h= with a name of nothing': LENIENT,
  't= that is no number': LENIENT,
  'x= before t=': LENIENT,
  'b= with what is no base64': LENIENT,
  'l= less than the body': PYTHON_DKIM['l= less than the body'],
  'a key of 768 bits': 'it leaves it to who asks how long a key has to be (RFC 8301)',
};
const COLON = 'its test mode changes the white space behind the colon of a field';
const OPENDKIM = {
  'white space around tags': COLON,
  'folds between tags': COLON,
  'a body without a last line end': 'its test mode reads lines, and this is none',
  'a tag name with a hyphen': LENIENT,
  'h= with a name of nothing': ANY_NAMES,
  'h= with white space in a name': ANY_NAMES,
  'b= with what is no base64': MAILAUTH['b= with what is no base64'],
  'l= less than the body': PYTHON_DKIM['l= less than the body'],
};

const fails =
  (command: string, ...args: string[]) =>
  () =>
    spawnSync(command, args).status !== 0;
const VERIFIERS: Readonly<Record<string, Verifier>> = {
  'our own': { missing: () => false, verify: ours, otherwise: {} },
  mailauth: { missing: () => false, verify: mailauth, otherwise: MAILAUTH },
  'python3-dkim': {
    missing: fails(PYTHON, '-c', 'import dkim, nacl'),
    verify: program(PYTHON, join(PROGRAMS, 'verify_many.py')),
    otherwise: PYTHON_DKIM,
  },
  'Mail::DKIM': {
    missing: fails('perl', '-MMail::DKIM::Verifier', '-e', '1'),
    verify: program('perl', join(PROGRAMS, 'verify_many.pl')),
    otherwise: MAIL_DKIM,
  },
  opendkim: { missing: fails('/usr/sbin/opendkim', '-V'), verify: opendkim, otherwise: OPENDKIM },
};

describe('unusual signatures', function () {
  this.timeout(300_000);
  const random = randomFrom(6376);
  const messages = [
    ...Object.keys(ODDITIES).flatMap((name) => Array.from({ length: 4 }, () => oddMessage(random, [name]))),
    ...Array.from({ length: COUNT }, () => oddMessage(random)),
  ];

  for (const [name, { missing, verify, otherwise }] of Object.entries(VERIFIERS)) {
    it(`get the result of RFC 6376 from ${name}, of ${messages.length}, except where a reason is given`, async function () {
      if (missing()) {
        console.log(`    (skipped: ${name} is not installed)`);
        this.skip();
      }
      const verdicts = await verify(messages);
      const wrong = messages.filter((message, index) => message.valid !== verdicts[index]);
      const unexplained = wrong.filter(({ oddities }) => !oddities.some((one) => one in otherwise));
      expect(
        unexplained
          .map(
            ({ oddities, valid, raw }) =>
              `${valid ? 'rejected' : 'taken'}: ${oddities.join(', ')}\n${raw.toString('latin1')}`,
          )
          .slice(0, 3),
      ).to.deep.equal([]);
      expect(verdicts.filter((valid) => valid).length).to.be.within(messages.length / 3, messages.length);
    });
  }
});
