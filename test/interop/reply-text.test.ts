import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect } from 'chai';
import { splitReply } from '../../src/mail/replies/reply-text.ts';
import { QUOTING } from '../support/quoting.ts';
import { tempDir } from '../support/temp.ts';

const SCRIPT = new URL('../support/interop/reply_parsers.py', import.meta.url).pathname;
const OWN = 'Thanks, that works.\n\nSee you on Monday.\n';

/** Without empty lines and spaces at the ends: parsers differ in those. */
const words = (text: string) => text.trim().replace(/\s*\n\s*/g, '\n');

function run(command: string, args: readonly string[], packages: string, input = ''): string {
  const { stdout, stderr, status } = spawnSync(command, args, {
    input,
    encoding: 'utf8',
    timeout: 120_000,
    env: packages === '' ? process.env : { ...process.env, PYTHONPATH: packages },
  });
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

describe('third-party reply parsers', function () {
  this.timeout(300_000);
  let packages = '';

  before(async function () {
    if (process.env['WITH_PYPI'] === undefined) {
      console.log('    left out: fetches packages of PyPI; WITH_PYPI=1 runs it');
      return this.skip();
    }
    packages = await tempDir();
    const pip = ['-m', 'pip', '--disable-pip-version-check', '-q'];
    try {
      run('python3', [...pip, 'install', '--no-deps', '--target', packages, ...WHEELS], '');
      run('python3', [...pip, 'download', '--no-deps', '-d', packages, TALON], '');
      run('tar', ['-xzf', join(packages, 'talon-1.4.4.tar.gz'), '-C', packages], '');
    } catch (error) {
      console.log(`    left out: pip cannot fetch the parsers: ${String(error).slice(0, 200)}`);
      this.skip();
    }
  });

  it('agree with ours on top-posted replies of all programs and languages they know', () => {
    const texts = Object.values(QUOTING).map((above) => `${OWN}\n${above.join('\n')}\n\n> Does it work?\n> Bob\n`);
    const answers: Record<string, string[]> = JSON.parse(run('python3', [SCRIPT], packages, JSON.stringify(texts)));
    for (const text of texts) expect(words(splitReply(text).reply)).to.equal(words(OWN));
    for (const [parser, most] of Object.entries(MAX_UNKNOWN)) {
      const others = Object.keys(QUOTING).filter((_, i) => words(answers[parser]?.[i] ?? '') !== words(OWN));
      expect(others.length, `${parser}: ${others.join(', ')}`).to.be.at.most(most);
    }
  });

  it('find the same replies in the tests of talon, except where they are ambiguous', () => {
    const cases: { name: string; text: string; reply: string }[] = JSON.parse(
      run('python3', [SCRIPT, '--cases', join(packages, 'talon-1.4.4')], packages),
    );
    expect(cases.length).to.equal(48);
    const others = cases.filter(({ text, reply }) => words(splitReply(text).reply) !== words(reply));
    expect(others.map(({ name }) => name)).to.deep.equal(UNCLEAR);
    // What differs is not lost: it is all in the reply.
    for (const { name, text, reply } of others) expect(words(splitReply(text).reply), name).to.include(words(reply));
  });
});

const WHEELS = ['email_reply_parser==0.5.12', 'mail-parser-reply==1.36'];
const TALON = 'talon==1.4.4';

/** How many of the programs each of them does not know: there it leaves the attribution or the quote in the reply. */
const MAX_UNKNOWN = { email_reply_parser: 41, 'mail-parser-reply': 39 };

/** Cases of talon that stay reply here. */
const UNCLEAR = [
  'test_pattern_on_date_polymail', // empty lines within the attribution
  'test_reply_and_quotation_splitter_share_line', // own words on the line of the attribution
  'test_reply_and_quotation_splitter_share_line',
  'test_reply_and_quotation_splitter_share_line',
  'test_pattern_date_email_with_unicode', // an attribution without a colon
  'test_link_closed_with_quotation_marker_on_new_line', // `From:` alone
  'test_link_breaks_quotation_markers_sequence', // lines without a mark within the quote
  'test_link_breaks_quotation_markers_sequence',
  'test_from_block_starts_with_date', // `Date:` and `To:` without `From:`
];
