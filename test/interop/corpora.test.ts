import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type CorpusMessage, readCorpus } from '../support/interop/corpus.ts';
import { openSession, type Session } from '../support/mail.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

// Real messages through a real daemon: `CORPUS=DIR npx mocha test/interop/corpora.test.ts`, where DIR has .eml files and mailboxes, in any
// folders. docs/proof.md names public ones. None of their content is part of this project.

const DIR = process.env.CORPUS ?? '';
/** Between 250 and the POST, for any message; alone on a quiet machine it is milliseconds. */
const MAX_SECONDS = 30;
const AT_ONCE = 50;

interface Leaf {
  readonly type: string;
  /** Null for an attached message, whose bytes Python does not keep. */
  readonly hex: string | null;
  readonly text: string;
}

/** The leaves that Python's email finds; null where it gives up. */
function leavesOf(
  messages: readonly CorpusMessage[],
): { readonly leaves: readonly Leaf[] | null; readonly defects: readonly string[] }[] {
  const reader = new URL('../support/interop/leaves.py', import.meta.url).pathname;
  const { stdout, stderr, status } = spawnSync('python3', [reader], {
    input: messages.map(({ bytes }) => `${bytes.toString('hex')}\n`).join(''),
    encoding: 'utf8',
    maxBuffer: 1_000_000_000,
  });
  if (status !== 0) throw new Error(stderr);
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
}

interface Posted {
  readonly text?: string;
  readonly html?: string;
  readonly attachments: Record<string, { type: string; content: string; base64: boolean }>;
  readonly images: Record<string, { type: string; content: string }>;
  readonly parse_error?: string;
}

/** Letters and digits only: how lines are wrapped, and which charset a label stands for, is the matter of other tests. */
const skeleton = (text: string) => text.replace(/[^A-Za-z0-9]+/g, '');

/** Leaves that are nowhere in what was posted, those that are there twice, and files that Python has not. */
function compare(leaves: readonly Leaf[], { text = '', html = '', attachments, images }: Posted) {
  const files = [
    ...Object.values(attachments).map(({ type, content, base64 }) => ({ type, content, base64 })),
    ...Object.values(images).map(({ type, content }) => ({ type, content, base64: true })),
  ].map(({ type, content, base64 }) => {
    const bytes = Buffer.from(content, base64 ? 'base64' : 'utf8');
    return {
      type,
      hex: bytes.toString('hex'),
      skeleton: type.startsWith('text/') ? skeleton(bytes.toString()) : undefined,
    };
  });
  const shown = skeleton(text) + skeleton(html);
  const problems: string[] = [];
  for (const leaf of leaves) {
    const own = skeleton(leaf.text);
    const isIt = (file: (typeof files)[number]) =>
      leaf.hex === null
        ? file.type === leaf.type
        : file.hex === leaf.hex || (leaf.text !== '' && file.skeleton !== undefined && file.skeleton === own);
    const alike = files.findIndex((file) => file.type === leaf.type && isIt(file));
    const at = alike >= 0 ? alike : files.findIndex(isIt);
    const isText = /^(?:text|multipart)\//.test(leaf.type);
    const isShown = isText && own !== '' && shown.includes(own);
    if (at >= 0) files.splice(at, 1);
    if (
      at >= 0 &&
      isShown &&
      own.length > 100 &&
      leaves.filter((other) => skeleton(other.text).includes(own)).length === 1
    )
      problems.push(`twice: ${leaf.type}`);
    const isEmpty = leaf.hex === '' || (isText && own === '');
    if (at < 0 && !isShown && !isEmpty && !/^begin(?:-base64)? [0-7]{3,4} /m.test(leaf.text))
      problems.push(`nowhere: ${leaf.type}`);
  }
  for (const file of files) problems.push(`only ours: ${file.type}`);
  return problems;
}

describe('a corpus of real messages', () => {
  it('is accepted, posted once, and parsed as by Python', async function () {
    if (!existsSync(DIR)) {
      process.stdout.write('no real messages are tried: CORPUS=DIR names a folder of .eml files and mailboxes\n');
      return this.skip();
    }
    this.timeout(0);
    const hook: Receiver = await startReceiver();
    const postern: TestDaemon = await startDaemon();
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
    const tally = {
      messages: 0,
      refused: 0,
      posted: 0,
      twice: 0,
      raw: 0,
      notReadByPython: 0,
      leaves: 0,
      alike: 0,
      slowestMs: 0,
    };
    const kinds = new Map<string, string[]>();
    const note = (kind: string, name: string) => kinds.set(kind, [...(kinds.get(kind) ?? []), name]);
    let session: Session | undefined;

    async function send({ bytes }: CorpusMessage, to: string): Promise<string> {
      session ??= await openSession(postern.smtp);
      await session.say('EHLO corpus.example.org');
      await session.say('MAIL FROM:<corpus@example.org>');
      await session.say(`RCPT TO:<${to}@in.test>`);
      await session.say('DATA');
      try {
        return await session.data(bytes);
      } catch {
        session = undefined;
        return '(the connection was closed)';
      }
    }

    async function tried(batch: readonly CorpusMessage[]): Promise<void> {
      const sent: (readonly [message: CorpusMessage, to: string, at: number])[] = [];
      const first = hook.requests.length;
      for (const message of batch) {
        const to = `m${tally.messages++}`;
        const reply = await send(message, to);
        if (reply.startsWith('250')) sent.push([message, to, Date.now()]);
        else {
          tally.refused++;
          note(`refused: ${reply.slice(0, 60)}`, message.name);
          session?.close();
          session = undefined;
        }
      }
      await until('the posts', () => hook.requests.length - first >= sent.length, MAX_SECONDS * 1000);
      const posts = new Map<string, { at: number; msg: Posted }[]>();
      for (const { body, at } of hook.requests.slice(first)) {
        const [{ msg }] = JSON.parse(new URLSearchParams(body.toString()).get('mandrill_events') ?? '[]');
        posts.set(msg.email, [...(posts.get(msg.email) ?? []), { at, msg }]);
      }
      const found = leavesOf(sent.map(([message]) => message));
      for (const [index, [message, to, at]] of sent.entries()) {
        const [post, another] = posts.get(`${to}@in.test`) ?? [];
        if (another) tally.twice++;
        if (!post) continue;
        tally.posted++;
        tally.slowestMs = Math.max(tally.slowestMs, post.at - at);
        const leaves = found[index]?.leaves;
        if (post.msg.parse_error !== undefined) {
          tally.raw++;
          note(`raw: ${post.msg.parse_error}`, message.name);
        } else if (!leaves) {
          tally.notReadByPython++;
          note('not read by Python', message.name);
        } else {
          tally.leaves += leaves.length;
          const problems = compare(leaves, post.msg);
          if (problems.length === 0) tally.alike++;
          const sound = (found[index]?.defects.length ?? 0) === 0 ? '' : ' (Python sees defects)';
          for (const problem of new Set(problems)) note(`${problem}${sound}`, message.name);
        }
      }
      hook.requests.splice(0);
    }

    try {
      let batch: CorpusMessage[] = [];
      for (const message of readCorpus(DIR)) {
        batch.push(message);
        if (batch.length < AT_ONCE) continue;
        await tried(batch);
        batch = [];
      }
      if (batch.length > 0) await tried(batch);
    } finally {
      session?.close();
      await postern.stop();
      await hook.stop();
    }
    const lines = [
      JSON.stringify(tally),
      ...[...kinds]
        .toSorted(([, a], [, b]) => b.length - a.length)
        .flatMap(([kind, names]) => [`${names.length} ${kind}`, ...names.slice(0, 10).map((name) => `    ${name}`)]),
    ];
    process.stdout.write(`${lines.join('\n')}\n`);
    const vanished = [...kinds].filter(([kind]) => /^nowhere: \S+$/.test(kind)).flatMap(([, names]) => names);
    expect(tally.messages).to.be.above(0);
    expect(tally.posted, 'posted').to.equal(tally.messages - tally.refused);
    expect(tally.twice, 'posted twice').to.equal(0);
    expect(tally.slowestMs, 'the slowest').to.be.below(MAX_SECONDS * 1000);
    expect(vanished, 'messages without defects of which a part is nowhere').to.deep.equal([]);
  });
});
