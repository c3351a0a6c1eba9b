import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import {
  addressDataSize,
  maxDataBytes,
  openReplyToken,
  parseReplyAddress,
  type SealScope,
  sealReplyAddress,
  toFullMinute,
} from '../../../src/mail/addresses/reply-address.ts';
import { medians } from '../../support/medians.ts';

const KEY = 'a-key-of-this-domain';
const SCOPE: SealScope = { account: 'acme', domain: 'in.example.com', mailbox: 'reply' };
const IN_2026 = Date.UTC(2026, 0, 5, 12);

const seal = (data: string, expiresAt: number | null = null, scope = SCOPE, key = KEY) =>
  sealReplyAddress(key, scope, { data, expiresAt });
function open(local: string, scope: Partial<SealScope> = {}, keys: readonly string[] = [KEY]) {
  const parsed = parseReplyAddress(local);
  return parsed && openReplyToken(keys, { ...SCOPE, mailbox: parsed.mailbox, ...scope }, parsed.token);
}

describe('a reply address', () => {
  it('returns the sealed data, in any case', () => {
    for (const data of ['1', 'ticket 4711', 'Grüße', '😀', 'a'.repeat(24), '0b54ad77-fa1c-4ba2-9b1c-1d2d9b2b0a5f'])
      for (const expiresAt of addressDataSize(data) > 20 ? [null] : [null, toFullMinute(IN_2026)]) {
        const local = seal(data, expiresAt);
        expect(open(local), local).to.deep.equal({ data, expiresAt });
        expect(open(local.toUpperCase()), local).to.deep.equal({ data, expiresAt });
        expect(local).to.match(/^reply\+r-[0-9a-v]+$/);
      }
  });

  it('has a local part of at most 64 octets, as long as the data fits', () => {
    for (const mailbox of ['a', 'reply', 'a-name-that-has-32-characters-xx'])
      for (const expiresAt of [null, IN_2026]) {
        const scope = { ...SCOPE, mailbox };
        const room = maxDataBytes(mailbox, expiresAt !== null);
        expect(seal('x'.repeat(room), expiresAt, scope).length).to.be.at.most(64);
        expect(seal('x'.repeat(room + 1), expiresAt, scope).length).to.be.above(64);
        expect(open(seal('x'.repeat(room), expiresAt, scope))?.data).to.have.length(room);
      }
    expect([maxDataBytes('reply', true), maxDataBytes('reply', false)]).to.deep.equal([20, 24]);
  });

  it('is valid for one mailbox of one domain of one account, and with the keys of the domain only', () => {
    const local = seal('x');
    expect(open(local, {}, ['another', KEY])).to.include({ data: 'x' });
    expect(open(local, {}, ['another'])).to.equal(undefined);
    expect(open(local, {}, [])).to.equal(undefined);
    expect(open(local, { account: 'other' })).to.equal(undefined);
    expect(open(local, { domain: 'in.example.net' })).to.equal(undefined);
    expect(open(local.replace('reply', 'sales'))).to.equal(undefined);
  });

  it('hides its contents', () => {
    const local = seal('ticket 4711');
    expect(Buffer.from(local).toString('latin1')).not.to.include('4711');
    // The same length, and nothing in common with the address of the next ticket.
    const [one = '', two = ''] = ['ticket 4711', 'ticket 4712'].map((data) => seal(data).slice('reply+r-'.length));
    expect([...one].filter((char, i) => char === two[i]).length).to.be.below(one.length / 2);
  });

  it('is rejected with any character changed, added or removed', () => {
    const local = seal('ticket 4711', toFullMinute(IN_2026));
    const digits = '0123456789abcdefghijklmnopqrstuv';
    for (let at = 'reply+r-'.length; at < local.length; at++) {
      for (const digit of digits)
        if (digit !== local[at])
          expect(open(`${local.slice(0, at)}${digit}${local.slice(at + 1)}`)).to.equal(undefined);
      expect(open(local.slice(0, at) + local.slice(at + 1))).to.equal(undefined);
    }
    for (const digit of digits) expect(open(local + digit)).to.equal(undefined);
  });

  it('is not guessed in 10,000 tries', () => {
    const accepted = Array.from({ length: 10_000 }, (_, i) => {
      const token = BigInt(`0x${randomBytes(40).toString('hex')}`)
        .toString(32)
        .padStart(64, '0')
        .slice(0, 20 + (i % 36));
      return open(`reply+r-${token}`);
    }).filter((found) => found !== undefined);
    expect(accepted).to.deep.equal([]);
  });

  it('reveals nothing by its timing', async () => {
    const local = seal('ticket 4711');
    const start = 'reply+r-'.length;
    const random = () => seal('ticket 4711', null, SCOPE, randomBytes(8).toString('hex'));
    // A digit that is another one, at a position of the token.
    const changed = (at: number) => `${local.slice(0, at)}${local[at] === '7' ? '8' : '7'}${local.slice(at + 1)}`;
    const tried = (local: string, keys?: readonly string[]) => () => open(local, {}, keys);
    const took = await medians({
      random: () => tried(random()),
      near: () => tried(changed(local.length - 2)),
      far: () => tried(changed(start)),
      'with ten keys': () =>
        tried(
          random(),
          Array.from({ length: 10 }, (_, i) => `${i}`),
        ),
    });
    expect(took.near / took.random).to.be.within(0.7, 1.4);
    expect(took.far / took.random).to.be.within(0.7, 1.4);
    expect(took['with ten keys'] / took.random, 'control: more work takes longer').to.be.above(2);
  });

  it('is different from other mailboxes', () => {
    for (const local of [
      'reply',
      'reply+news',
      'reply+r-',
      'reply+r-short',
      '+r-00000000000000000000000',
      'reply+r-0000000000000000000000-00',
      'reply+r-wwwwwwwwwwwwwwwwwwwwwwwwwwwww',
      'r-00000000000000000000000000',
    ])
      expect(parseReplyAddress(local), local).to.equal(undefined);
  });
});
