import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { type FormatName, MANDRILL } from '../../src/inbound/formats.ts';
import { freePort } from '../support/free-port.ts';
import { buildGo, hasGo } from '../support/interop/go.ts';
import { bytesOf, multipart, renderJob, spooled } from '../support/mime.ts';
import { type OpenRenderer, openRenderer } from '../support/renderer.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

// Our forms with names that a hostile sender chose, read by the parsers that applications use.

/** What a parser read: names and values of fields, names of fields and of files. */
interface Form {
  readonly fields: readonly (readonly [string, string])[];
  readonly files: readonly (readonly [string, string])[];
}

interface Post {
  readonly path: string;
  readonly bytes: Buffer;
  readonly type: string;
}

const run = promisify(execFile);
const scriptOf = (name: string): string =>
  fileURLToPath(new URL(`../support/interop/form-readers/${name}`, import.meta.url));
const works = (program: string, ...args: readonly string[]): boolean => spawnSync(program, args).status === 0;
const read = async (program: string, ...args: readonly string[]): Promise<Form> =>
  JSON.parse((await run(program, args, { maxBuffer: 64 * 1024 * 1024 })).stdout);

let go = '';
let php: ChildProcess | undefined;
let phpPort = 0;

/** Parsers, each with whether it is here. */
const READERS: Readonly<
  Record<string, { readonly isHere: () => boolean; readonly read: (post: Post) => Promise<Form> }>
> = {
  "undici's": {
    isHere: () => true,
    async read({ bytes, type }) {
      const data = await new Response(Uint8Array.from(bytes), { headers: { 'content-type': type } }).formData();
      const all = [...data];
      return {
        fields: all.flatMap(([name, value]) => (typeof value === 'string' ? [[name, value] as const] : [])),
        files: all.flatMap(([name, value]) => (typeof value === 'string' ? [] : [[name, value.name] as const])),
      };
    },
  },
  "Python's email": {
    isHere: () => works('python3', '-c', 'import email'),
    read: ({ path, type }) => read('python3', scriptOf('form.py'), 'email', path, type),
  },
  "Werkzeug's": {
    isHere: () => works('python3', '-c', 'import werkzeug.formparser'),
    read: ({ path, type }) => read('python3', scriptOf('form.py'), 'werkzeug', path, type),
  },
  // Debian's packages belong to Debian's Python.
  "Django's": {
    isHere: () => works('/usr/bin/python3', '-c', 'import django'),
    read: ({ path, type }) => read('/usr/bin/python3', scriptOf('form.py'), 'django', path, type),
  },
  "Rack's, which is Rails'": {
    isHere: () => works('ruby', '-e', 'require "rack"'),
    read: ({ path, type }) => read('ruby', scriptOf('form.rb'), path, type),
  },
  "Go's": {
    isHere: hasGo,
    async read({ path, type }) {
      if (go === '') {
        go = join(await tempDir(), 'form');
        await buildGo(scriptOf('form.go'), go);
      }
      return read(go, path, type);
    },
  },
  "PHP's": {
    isHere: () => works('php', '-v'),
    async read({ bytes, type }) {
      if (!php) {
        phpPort = await freePort();
        php = spawn('php', ['-d', 'max_file_uploads=100', '-S', `127.0.0.1:${phpPort}`, scriptOf('form.php')], {
          stdio: 'ignore',
        });
      }
      const url = `http://127.0.0.1:${phpPort}/`;
      await until('PHP to listen', () => fetch(url).then(Boolean, () => false));
      const answer = await fetch(url, {
        method: 'POST',
        headers: { 'content-type': type },
        body: Uint8Array.from(bytes),
      });
      return JSON.parse(await answer.text());
    },
  },
};

const NAMES = [
  'a\r\nX-Injected: yes.txt',
  'a\rb.txt',
  'a\nb.txt',
  'a\u0085b.txt',
  'a\u2028b\u2029c.txt',
  'a\vb\fc.txt',
  'a\u202etxt.exe',
  'a"; name="token"; x="b.txt',
  "a; name=recipient; filename*=utf-8''b.txt",
  'a\\',
  'a\\"b.txt',
  '..\\..\\etc\\passwd',
  '../../etc/passwd',
  'a%0d%0aX-Injected: yes.txt',
  'a%0D%0Ab%22; name=%22token.txt',
  '..%2f..%2fetc%2fpasswd',
  '..%5c..%5cpasswd',
  'a%c2%85%e2%80%a8%00.txt',
  '%2e%2e%2fpasswd',
  '100%.txt',
  '100%25.txt',
  'r\u00e9sum\u00e9 %C3%A9.txt',
];
const FILES = NAMES.map((name) => [
  'Content-Type: text/x-test',
  `Content-Disposition: attachment; filename*=utf-8''${encodeURIComponent(name)}`,
  '',
  'x',
]);

/** What a post of Mailgun says itself, some of it only now and then. */
const OWN =
  'recipient sender from subject body-plain body-html body-mime stripped-text stripped-html stripped-signature attachment-count ' +
  'attachment-1 attachments content-id-map message-headers message-url domain sender-auth automated timestamp token signature ' +
  'X-Mailgun-Incoming X-Mailgun-Sflag X-Mailgun-Spf';
const inCases = (name: string): readonly string[] => [
  name,
  name.toUpperCase(),
  name.replace(/(?:^|-)[a-z]/g, (c) => c.toUpperCase()),
];
const HOSTILE = multipart(
  'mixed',
  [
    'From: "Eve =?utf-8?q?=0D=0ABcc:_x?=" <eve@attacker.test>',
    'Subject: first',
    ...OWN.split(' ')
      .flatMap(inCases)
      .map((name) => `${name}: forged`),
    'Subject: =?utf-8?q?last=0D=0AX-Injected:_yes=E2=80=A8x?=',
    'X-Lines: a\u0085b\u2028c\vd\fe',
    ...Array.from({ length: 600 }, (_, i) => `X-Many-${i}: y`),
  ],
  ['', 'Hello'],
  ...FILES,
);
const FORMATS: readonly FormatName[] = ['mailgun', 'mailgun-mime', 'sendgrid', 'sendgrid-raw'];

describe('form posts with hostile names', function () {
  this.timeout(120_000);
  let renderer: OpenRenderer;
  const posts = new Map<FormatName, Post>();

  before(async () => {
    ({ renderer } = await openRenderer());
    const dir = await tempDir();
    for (const format of FORMATS) {
      const message = spooled({
        scan: { spam: 'spam', virus: 'clean', name: null, score: 9, rules: [], by: ['rspamd'], reason: null },
      });
      const { body, headers } = await renderer.render(renderJob(HOSTILE, { message, style: { ...MANDRILL, format } }));
      const bytes = await bytesOf(body);
      const path = join(dir, format);
      await writeFile(path, bytes);
      posts.set(format, { path, bytes, type: headers['Content-Type'] ?? '' });
    }
  });
  after(async () => {
    await renderer.stop();
    php?.kill();
  });

  for (const [name, reader] of Object.entries(READERS))
    for (const format of FORMATS)
      it(`${name} parser reads ${format} as intended`, async function () {
        if (!reader.isHere()) {
          console.log(`left out: ${name} parser is not installed`);
          return this.skip();
        }
        const post = posts.get(format);
        if (!post) throw new Error('there is no post');
        const { fields, files } = await reader.read(post);
        // No field of ours is there twice, whatever its case, and none says what the sender wrote.
        const names = new Set(OWN.toLowerCase().split(' '));
        const ours = Map.groupBy(
          fields.filter(([field]) => names.has(field.toLowerCase())),
          ([field]) => field.toLowerCase(),
        );
        for (const [field, all] of ours) {
          expect(new Set(all.map(([, value]) => value)).size, field).to.equal(1);
          if (!['body-mime', 'message-headers'].includes(field))
            for (const [, value] of all) expect(value, field).not.to.match(/forged|[\r\u0085\u2028\v\f]|\n(?!$)/);
        }
        if (format === 'mailgun') {
          const valueOf = (field: string) => fields.find(([one]) => one === field)?.[1];
          expect(valueOf('recipient')).to.equal('in@example.net');
          // However many fields the header has.
          expect([valueOf('X-Mailgun-Sflag'), valueOf('X-Mailgun-Sscore')]).to.deep.equal(['Yes', '9']);
        }
        if (format === 'sendgrid')
          for (const line of fields.find(([one]) => one === 'headers')?.[1].split(/[\r\n\v\f\u0085\u2028\u2029]/) ?? [])
            expect(line).to.match(/^$|^[!-9;-~]+: /);
        const isRaw = format.endsWith('-mime') || format.endsWith('-raw');
        expect(files).to.have.length(isRaw ? 0 : NAMES.length);
        for (const [field, file] of files) {
          expect(field).to.match(/^attachment-?\d+$/);
          expect(file, JSON.stringify(file)).not.to.match(/[\p{Cc}\p{Cf}\u2028\u2029/\\]/u);
        }
        expect(fields.some(([field]) => /injected/i.test(field))).to.equal(false);
      });
});
