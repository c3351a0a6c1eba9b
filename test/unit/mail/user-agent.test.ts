import { expect } from 'chai';
import { parseUserAgent } from '../../../src/mail/user-agent.ts';
import { growth } from '../../support/growth.ts';

const AGENTS: readonly (readonly [string, object])[] = [
  [
    'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36',
    {
      type: 'Browser',
      ua_name: 'Chrome 120.0.0.0',
      ua_company: 'Google LLC',
      os_family: 'Windows',
      os_name: 'Windows 10',
      os_company: 'Microsoft Corporation',
      mobile: false,
    },
  ],
  // A captured post calls this one "Mobile Browser", "Mobile Safari" without a version, on iOS.
  [
    'Mozilla/5.0 (iPhone; CPU iPhone OS 11_2_6 like Mac OS X) AppleWebKit/604.5.6 (KHTML, like Gecko) Mobile/15D100',
    {
      type: 'Mobile Browser',
      ua_family: 'Mobile Safari',
      ua_name: 'Mobile Safari',
      ua_version: null,
      ua_company: 'Apple Inc.',
      os_family: 'iOS',
      os_name: 'iOS 11.2.6',
      mobile: true,
    },
  ],
  [
    'Mozilla/5.0 (Linux; Android 13; SM-S901B) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/112.0.0.0 Mobile Safari/537.36',
    { type: 'Mobile Browser', ua_family: 'Chrome', os_family: 'Android', mobile: true },
  ],
  [
    'Mozilla/5.0 (X11; Linux x86_64; rv:115.0) Gecko/20100101 Thunderbird/115.6.0',
    { type: 'Email Client', ua_name: 'Thunderbird 115.6.0', os_family: 'Linux' },
  ],
  [
    'Microsoft Office/16.0 (Windows NT 10.0; Microsoft Outlook 16.0.4266; Pro)',
    { type: 'Email Client', ua_name: 'Outlook 16.0.4266', os_family: 'Windows' },
  ],
  [
    'Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)',
    { type: 'Email Client', ua_family: 'Gmail', ua_version: null, os_family: null, os_name: null },
  ],
  [
    'Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)',
    { type: 'Robot', ua_family: 'Googlebot' },
  ],
];

describe('user agent parsing', () => {
  for (const [text, expected] of AGENTS)
    it(`recognises ${text}`, () => expect(parseUserAgent(text)).to.include(expected));

  it('returns every key that consumers read, known or not', () => {
    for (const [text] of AGENTS) {
      expect(parseUserAgent(text)).to.have.all.keys(
        'type',
        'ua_family',
        'ua_name',
        'ua_version',
        'ua_url',
        'ua_company',
        'ua_company_url',
        'ua_icon',
        'os_family',
        'os_name',
        'os_url',
        'os_company',
        'os_company_url',
        'os_icon',
        'mobile',
      );
    }
  });

  it('returns nothing for an empty one', () => {
    for (const text of ['', '   ', 'Example', 'Mozilla/5.0', '(', '\0\u202e'])
      expect(parseUserAgent(text), text).to.equal(undefined);
  });

  it('takes linear time', () => {
    for (const piece of ['a ', '1.', '(', 'Mozilla/5.0 (', 'x/', '; ', 'Version/', 'Safari', 'Android ', 'MSIE ', '\t'])
      expect(
        growth((size) => parseUserAgent(piece.repeat(size)), 6000),
        piece,
      ).to.be.below(64);
  });
});
