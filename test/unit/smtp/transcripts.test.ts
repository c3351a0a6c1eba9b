import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { type Client, type Started, whereverSessionsAre } from '../../support/smtp.ts';
import { type StartedSubmission, startSubmission } from '../../support/submission.ts';

/**
 * Every file in transcripts/ is a dialog in the notation of RFC 5321 appendix D, with an EHLO already behind it:
 * `C:` what the client says (lines that follow one another go out together), `S:` what it must hear (`…` is any text,
 * `(closed)` the end of the connection), `*` what is wrong below, `#` the sentence it tests.
 */
const folder = join(import.meta.dirname, 'transcripts');

const TROUBLES: Record<string, (started: Started) => void> = {
  'no room': ({ below }) => {
    below.room = false;
  },
  'backlog full': ({ below }) => {
    below.backlog = 1001;
  },
  'spool broken': ({ below }) => {
    below.accept = async () => 'fault';
  },
  'spool full': ({ below }) => {
    below.accept = async () => 'full';
  },
  'spool throws': ({ below }) => {
    below.accept = async () => {
      throw new Error('secret of the house');
    };
  },
  'disk breaks': ({ below }) => {
    below.write = async () => {
      throw new Error('secret of the house');
    };
  },
  'routing throws': ({ below }) => {
    below.lookup = () => {
      throw new Error('secret of the house');
    };
  },
};

/** Each reply of the server as one text, its lines joined. */
async function hear(client: Client, expected: string[]): Promise<void> {
  const wanted = expected.join('\n');
  const heard = (await client.reply()).replaceAll('\r\n', '\n');
  const pattern = wanted
    .split('…')
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('[^\\n]*');
  expect(heard === 'closed' ? '(closed)' : heard).to.match(new RegExp(`^${pattern}$`));
}

async function play(client: Client, lines: readonly string[]): Promise<void> {
  let saying = '';
  let reply: string[] = [];
  for (const line of lines) {
    const text = line.slice(3);
    if (line.startsWith('C:')) saying += `${text}\r\n`;
    if (!line.startsWith('S:')) continue;
    if (saying !== '') client.send(saying);
    saying = '';
    reply.push(text);
    if (/^\d{3}-/.test(text)) continue;
    await hear(client, reply);
    reply = [];
  }
}

whereverSessionsAre('an SMTP dialog', (start, threads) => {
  let started: Started;
  before(async () => {
    started = await start();
  });
  after(() => started.stop());
  afterEach(() => started.below.mend());

  for (const file of readdirSync(folder).filter((name) => name.endsWith('.txt') && !name.startsWith('submission-'))) {
    const lines = readFileSync(join(folder, file), 'utf8').split('\n');
    // Threads collect bodies themselves.
    if (threads > 0 && lines.includes('* disk breaks')) continue;
    const title = lines.find((line) => line.startsWith('# '))?.slice(2) ?? file;
    it(title, async () => {
      for (const line of lines) if (line.startsWith('* ')) TROUBLES[line.slice(2)]?.(started);
      const client = await started.client(lines.some((line) => line.startsWith('* unsaid')) ? '' : 'EHLO client.test');
      await play(client, lines);
    });
  }
});

/**
 * submission-*.txt are dialogs of a developer's machine: everything on loopback, no certificate, so a login needs no
 * TLS.
 */
describe('an SMTP dialog of submission', () => {
  let started: StartedSubmission;
  beforeEach(async () => {
    started = await startSubmission({ loopbackOnly: true });
  });
  afterEach(() => started.stop());

  for (const file of readdirSync(folder).filter((name) => name.startsWith('submission-'))) {
    const lines = readFileSync(join(folder, file), 'utf8').split('\n');
    it(lines.find((line) => line.startsWith('# '))?.slice(2) ?? file, async () => {
      await play(
        await started.client(lines.some((line) => line.startsWith('* unsaid')) ? '' : 'EHLO client.test'),
        lines,
      );
    });
  }
});
