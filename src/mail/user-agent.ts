import Bowser from 'bowser';

/** The program that opened a message or followed a link, from its User-Agent, in the form of click and open events. */
interface UserAgent {
  readonly type: 'Browser' | 'Mobile Browser' | 'Email Client' | 'Robot';
  readonly ua_family: string;
  readonly ua_name: string;
  readonly ua_version: string | null;
  readonly ua_url: string | null;
  readonly ua_company: string | null;
  readonly ua_company_url: string | null;
  /** Always null: we do not serve icons. */
  readonly ua_icon: null;
  readonly os_family: string | null;
  readonly os_name: string | null;
  readonly os_url: string | null;
  readonly os_company: string | null;
  readonly os_company_url: string | null;
  readonly os_icon: null;
  readonly mobile: boolean;
}

/** Characters of a User-Agent to parse. */
const LONGEST = 500;

/** Mail programs, and services that fetch images for them, that the library does not know. A version follows. */
const MAIL_CLIENTS: readonly (readonly [pattern: RegExp, family: string])[] = [
  [/\bGoogleImageProxy\b/, 'Gmail'],
  [/\bYahooMailProxy\b/, 'Yahoo! Mail'],
  [/\bThunderbird\/([\d.]+)/, 'Thunderbird'],
  [/\bPostbox\/([\d.]+)/, 'Postbox'],
  [/\bMicrosoft Outlook ([\d.]+)/, 'Outlook'],
  [/\bOutlook-(?:iOS|Android)\/([\d.]+)/, 'Outlook'],
  [/\bms-office; MSOffice (\d+)/i, 'Outlook'],
  [/\bAirmail[ /]([\d.]+)/, 'Airmail'],
  [/\beM ?Client\/([\d.]+)/, 'eM Client'],
  [/\bLotus-Notes\/([\d.]+)/, 'Lotus Notes'],
];

interface Maker {
  readonly company: string;
  readonly url: string;
}

const APPLE: Maker = { company: 'Apple Inc.', url: 'https://www.apple.com/' };
const GOOGLE: Maker = { company: 'Google LLC', url: 'https://www.google.com/' };
const MICROSOFT: Maker = { company: 'Microsoft Corporation', url: 'https://www.microsoft.com/' };
const MOZILLA: Maker = { company: 'Mozilla Foundation', url: 'https://www.mozilla.org/' };
const OPERA: Maker = { company: 'Opera Norway AS', url: 'https://www.opera.com/' };
const SAMSUNG: Maker = { company: 'Samsung Electronics', url: 'https://www.samsung.com/' };
const YAHOO: Maker = { company: 'Yahoo Inc.', url: 'https://www.yahoo.com/' };

/** The makers of the most common programs, and the home pages. */
const MAKERS: ReadonlyMap<string, readonly [maker: Maker, home: string]> = new Map([
  ['Chrome', [GOOGLE, 'https://www.google.com/chrome/']],
  ['Chromium', [GOOGLE, 'https://www.chromium.org/']],
  ['Gmail', [GOOGLE, 'https://mail.google.com/']],
  ['Googlebot', [GOOGLE, 'https://www.google.com/bot.html']],
  ['Android Browser', [GOOGLE, 'https://www.android.com/']],
  ['Safari', [APPLE, 'https://www.apple.com/safari/']],
  ['Mobile Safari', [APPLE, 'https://www.apple.com/safari/']],
  ['Firefox', [MOZILLA, 'https://www.firefox.com/']],
  ['Thunderbird', [MOZILLA, 'https://www.thunderbird.net/']],
  ['Microsoft Edge', [MICROSOFT, 'https://www.microsoft.com/edge/']],
  ['Internet Explorer', [MICROSOFT, 'https://www.microsoft.com/']],
  ['Outlook', [MICROSOFT, 'https://www.microsoft.com/outlook/']],
  ['Microsoft Office', [MICROSOFT, 'https://www.microsoft.com/office/']],
  ['Opera', [OPERA, 'https://www.opera.com/']],
  ['Opera Touch', [OPERA, 'https://www.opera.com/']],
  ['Samsung Internet for Android', [SAMSUNG, 'https://www.samsung.com/']],
  ['Yahoo! Mail', [YAHOO, 'https://mail.yahoo.com/']],
  ['Postbox', [{ company: 'Postbox, Inc.', url: 'https://www.postbox-inc.com/' }, 'https://www.postbox-inc.com/']],
  ['macOS', [APPLE, 'https://www.apple.com/macos/']],
  ['iOS', [APPLE, 'https://www.apple.com/ios/']],
  ['Android', [GOOGLE, 'https://www.android.com/']],
  ['Chrome OS', [GOOGLE, 'https://www.google.com/chromebook/']],
  ['Windows', [MICROSOFT, 'https://www.microsoft.com/windows/']],
]);

/** Parses a User-Agent; undefined if nothing in it is known. Linear; only the first 500 characters are read. */
export function parseUserAgent(text: string): UserAgent | undefined {
  const words = text.slice(0, LONGEST);
  if (words.trim() === '') return undefined;
  const { browser, os, platform } = Bowser.parse(words);
  const mobile = platform.type === 'mobile' || platform.type === 'tablet';
  const client = mailClientOf(words);
  const family = client?.family ?? (browser.name === 'Safari' && mobile ? 'Mobile Safari' : (browser.name ?? ''));
  if (family === '' || (!client && family === 'Mozilla')) return undefined;
  const version = (client ? client.version : browser.version) || null;
  const [maker, home = null] = MAKERS.get(family) ?? [];
  // A service that fetches images says nothing about its user's system.
  const system = client && client.version === null ? '' : (os.name ?? '');
  const [osMaker, osHome = null] = MAKERS.get(system) ?? [];
  return {
    type: client ? 'Email Client' : platform.type === 'bot' ? 'Robot' : mobile ? 'Mobile Browser' : 'Browser',
    ua_family: family,
    ua_name: version === null ? family : `${family} ${version}`,
    ua_version: version,
    ua_url: home,
    ua_company: maker?.company ?? null,
    ua_company_url: maker?.url ?? null,
    ua_icon: null,
    os_family: system || null,
    os_name: system === '' ? null : nameOf(system, os),
    os_url: osHome,
    os_company: osMaker?.company ?? null,
    os_company_url: osMaker?.url ?? null,
    os_icon: null,
    mobile,
  };
}

function mailClientOf(words: string): { readonly family: string; readonly version: string | null } | undefined {
  for (const [pattern, family] of MAIL_CLIENTS) {
    const found = pattern.exec(words);
    if (found) return { family, version: found[1] ?? null };
  }
  return undefined;
}

/** `macOS 10.6 Snow Leopard`, `Windows 10`: for Windows the marketing name, not the kernel version. */
function nameOf(system: string, { version = '', versionName = '' }: Bowser.Parser.OSDetails): string {
  const parts = system === 'Windows' && versionName !== '' ? [system, versionName] : [system, version, versionName];
  return parts.filter((part) => part !== '').join(' ');
}
