import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { postern } from '../../support/command.ts';
import { tempDir } from '../../support/temp.ts';

describe('postern bounce explain', () => {
  const explain = (...argv: string[]) => postern(['bounce', 'explain', ...argv], {});

  it('names the rule that classified the reply of a server', async () => {
    expect(await explain('--reply', '550 5.1.1 No such user')).to.deep.include({
      code: 0,
      out: 'hard bounce (bad_mailbox), by the rule "mailbox-unknown"\nThe mailbox does not exist.\nDiagnosis: 550 5.1.1 No such user\n',
    });
    expect((await explain('--reply', '550 Requested action not taken: mailbox unavailable')).out).to.match(
      /^soft bounce \(general\), by the rule "unclear"\n/,
    );
  });

  it('explains a mail in a file with either line ending', async () => {
    const file = join(await tempDir(), 'bounce.eml');
    for (const end of ['\n', '\r\n']) {
      await writeFile(
        file,
        ['From: MAILER-DAEMON@x.test', 'Subject: failure notice', '', 'Mailbox is full', ''].join(end),
      );
      expect((await explain(file, '--json')).json(), JSON.stringify(end)).to.deep.equal([
        {
          event: 'soft_bounce',
          description: 'mailbox_full',
          rule: 'mailbox-full',
          why: 'The mailbox is full.',
          diag: 'smtp;Mailbox is full',
        },
      ]);
    }
  });

  it('exits with the usage for a reply without a code and for a missing file', async () => {
    expect(await explain('--reply', 'no')).to.include({ code: 64 });
    expect(await explain('/nonexistent')).to.include({ code: 64 });
  });
});
