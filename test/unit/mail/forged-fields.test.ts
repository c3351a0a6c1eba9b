import { expect } from 'chai';
import { withoutForged } from '../../../src/mail/authentication-results.ts';
import { growth } from '../../support/growth.ts';

const OWN = { hosts: ['mx.example.net'], withTrace: true };

describe('forged trace fields of a sender', () => {
  for (const line of ['Authentication-Results\r\n', 'aaaaaaaaaaaaaa-aaaaaaa\r\n', 'Authentication-Results: (', '"\\'])
    it(`take linear time in a header of ${JSON.stringify(line)}`, () => {
      const look = (size: number) => [...withoutForged(Buffer.from(`A: b\r\n${line.repeat(size / line.length)}`), OWN)];
      expect(growth(look, 100_000, 30)).to.be.below(30);
    });

  it('are removed from a header of any size', () => {
    const junk = `X-Junk: ${'y'.repeat(300_000)}\r\n`;
    const forged = `Return-Path: <ceo@victim.example>\r\nAuthentication-Results:${' '.repeat(70_000)}mx.example.net; dmarc=pass\r\n`;
    const rest = 'From: a@b.test\r\n\r\nReturn-Path: <in the body>\r\n';
    expect(Buffer.concat([...withoutForged(Buffer.from(junk + forged + rest), OWN)]).toString()).to.equal(junk + rest);
  });
});
