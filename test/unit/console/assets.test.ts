import { spawnSync } from 'node:child_process';
import { globSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { stripTypeScriptTypes } from 'node:module';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { expect } from 'chai';
import Koa from 'koa';
import { createAssets } from '../../../src/console/assets.ts';
import { RECEIVERS, type ReceiverSample } from '../../../src/console/web/receivers.ts';
import { send, startConsole } from '../../support/console.ts';
import { tempDir } from '../../support/temp.ts';

/** A small page. */
async function makeWeb(): Promise<string> {
  const dir = join(await tempDir(), 'web');
  for (const folder of ['parts', 'screens']) await mkdir(join(dir, folder), { recursive: true });
  await writeFile(
    join(dir, 'main.ts'),
    "import type { A } from '../x.ts';\nimport { b } from './parts/b.ts';\nlet a: A = b;\nconst late = () => import('./screens/late.ts');\n",
  );
  await writeFile(join(dir, 'parts', 'b.ts'), 'export const b: number = 1;\n');
  await writeFile(join(dir, 'parts', 'c.ts'), 'export const c = 1;\n');
  await writeFile(join(dir, 'screens', 'now.ts'), "import {\n  c,\n} from '../parts/c.ts';\nexport const now = c;\n");
  await writeFile(join(dir, 'screens', 'late.ts'), 'export const late = 1;\n');
  await writeFile(join(dir, 'parts', 'hard.ts'), HARD);
  await writeFile(join(dir, 'page.css'), 'body { color: red }\n');
  await writeFile(join(dir, 'tsconfig.json'), '{}');
  await writeFile(join(dir, 'types.d.ts'), 'declare const secret: 1;');
  await writeFile(join(dir, '..', 'secret.ts'), 'export const secret = 1;');
  return dir;
}

/** Checks the syntax of each receiver that the console shows, and runs nothing. */
const CHECKS: Readonly<
  Record<ReceiverSample['id'], { readonly file: string; readonly check: readonly [string, ...string[]] }>
> = {
  node: { file: 'receiver.mjs', check: [process.execPath, '--check'] },
  rails: { file: 'mail_controller.rb', check: ['/usr/bin/ruby', '-c', '-W0'] },
  django: { file: 'mail.py', check: ['python3', '-m', 'py_compile'] },
  php: { file: 'receiver.php', check: ['php', '-l'] },
};

/** A module in which blanks, quotes and slashes stand where a careless eye takes them for something else. */
const HARD = `// gone
const quick = 1;
    const inner = quick / 2; /* stays: it has no line of its own */
  /* gone
     gone */
const python = \`
def mail():
    return "it's"   
  // not a comment
	tab
\`;
const nested = \`a
    \${[1, 2].map((n) => \`
      \${n === 1 ? '}' : "\`"}  
    /* not a comment */ \${/[\`}]/.test('x') /* here } too */}
    \`).join(\`
  ,\`)}
    z\`;
const escaped = \`\\\`
    still inside \\\${
    and here\`;
const slashes = [quick / inner, /[/'"\`]/.source, \`\${quick}\` / 2, 'http://x', "// not a comment"];
  // gone: it's a \` and a "
const after = \`
    last\`;
export const all = [python, nested, escaped, slashes, after];
`;

const TSC = resolve('node_modules/typescript/lib/tsc.js');

/** Modules as the compiler writes them, without comments and with indentation of its own. */
function rewritten(dir: string): readonly string[] {
  const options = '--allowJs --noCheck --noResolve --removeComments --target esnext --module esnext --outDir out'.split(
    ' ',
  );
  const { status, stdout } = spawnSync(process.execPath, [TSC, ...options, ...readdirSync(dir)], {
    cwd: dir,
    encoding: 'utf8',
  });
  expect(status, stdout).to.equal(0);
  return readdirSync(join(dir, 'out')).map((name) => readFileSync(join(dir, 'out', name), 'utf8'));
}

/** A file of the page, as the console serves it. */
async function servedBy(world: Awaited<ReturnType<typeof startConsole>>, file: string) {
  const { text } = await world.browser().ask('GET', '/console/');
  const [, own = ''] = /(\/console\/assets\/[\w-]+\/)/.exec(text) ?? [];
  return world.browser().ask('GET', own + file);
}

describe('the page of the console', () => {
  let server: Server;
  let port: number;
  let page: string;
  let version: string;
  before(async () => {
    const assets = createAssets('', await makeWeb());
    const app = new Koa();
    app.use(async (ctx) => {
      if (!ctx.path.startsWith('/console/assets/')) return assets.page(ctx);
      if (!(await assets.file(ctx, ctx.path.slice('/console/assets/'.length)))) ctx.status = 404;
    });
    server = createServer(app.callback());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
    page = (await send(port, 'GET', '/console/')).text;
    version = /assets\/([\w-]+)\//.exec(page)?.[1] ?? '';
  });
  after(() => {
    server.close();
  });

  const get = (path: string, headers = {}) => send(port, 'GET', `/console/assets/${version}/${path}`, headers);

  it('names the modules of the first screen, every style and library, and all of them exist', async () => {
    const named = [...page.matchAll(/(?:href|src)="([^"]+)"/g)].map(([, path]) => path ?? '');
    const { imports } = JSON.parse(/<script type="importmap">(.*?)<\/script>/.exec(page)?.[1] ?? '');
    expect(Object.keys(imports)).to.deep.equal([
      'preact',
      'preact/hooks',
      '@preact/signals',
      '@preact/signals-core',
      'uplot',
    ]);
    const preloaded = (html: string) =>
      [...html.matchAll(/<link rel="modulepreload" href="\/console\/assets\/[\w-]+\/([^"]+\.ts)"/g)].map(
        ([, path]) => path,
      );
    const start = ['main.ts', 'parts/b.ts', 'screens/now.ts', 'parts/c.ts'];
    expect(preloaded(page)).to.have.members(start);
    for (const [path, modules] of [
      ['/console/late', ['main.ts', 'parts/b.ts', 'screens/late.ts']],
      ['/console/late/1', ['main.ts', 'parts/b.ts', 'screens/late.ts']],
      ['/console/nowhere', start],
      ['/console/..%2Fparts%2Fb', start],
    ] as const)
      expect(preloaded((await send(port, 'GET', path)).text), path).to.have.members(modules);
    expect(named.some((path) => path.endsWith('/page.css'))).to.equal(true);
    expect((await get('screens/late.ts')).status).to.equal(200);
    for (const path of [...named, ...Object.values<string>(imports)])
      expect((await send(port, 'GET', path)).status, path).to.equal(200);
  });

  it('serves modules without types, at the same line numbers', async () => {
    const { text, headers } = await get('main.ts');
    expect(headers['content-type']).to.equal('text/javascript; charset=utf-8');
    expect(text.split('\n').map((line) => line.replaceAll(/ +/g, ' ').trim())).to.deep.equal([
      '',
      "import { b } from './parts/b.ts';",
      'let a = b;',
      "const late = () => import('./screens/late.ts');",
      '',
    ]);
  });

  it('has libraries that import one another through the import map, uPlot with a default', async () => {
    const { imports } = JSON.parse(/<script type="importmap">(.*?)<\/script>/.exec(page)?.[1] ?? '');
    for (const path of Object.values<string>(imports)) {
      const { text } = await send(port, 'GET', path);
      const wanted = [...text.matchAll(/\bfrom ?["']([^"']+)["']/g)].map(([, name]) => name ?? '');
      expect(
        wanted.filter((name) => !Object.hasOwn(imports, name)),
        path,
      ).to.deep.equal([]);
      expect(text).to.not.contain('sourceMappingURL');
    }
    const { default: plot } = await import(
      `data:text/javascript,${encodeURIComponent((await get('lib/uplot.js')).text)}`
    );
    expect(plot).to.be.a('function');
  });

  it('may be cached for a year, because each version has its own address', async () => {
    const { headers } = await get('main.ts');
    expect(headers['cache-control']).to.equal('public, max-age=31536000, immutable');
    const again = await get('main.ts', { 'If-None-Match': headers.etag });
    expect([again.status, again.text]).to.deep.equal([304, '']);
    expect((await send(port, 'GET', '/console/assets/old/main.ts')).status).to.equal(404);
  });

  it('is compressed as the browser accepts', async () => {
    const { text } = await get('page.css');
    const raw = (encoding: string) =>
      fetch(`http://127.0.0.1:${port}/console/assets/${version}/page.css`, {
        headers: { 'Accept-Encoding': encoding },
      });
    for (const encoding of ['br', 'gzip']) {
      const response = await raw(encoding);
      expect([response.headers.get('content-encoding'), await response.text()]).to.deep.equal([encoding, text]);
    }
    expect((await get('page.css', { 'Accept-Encoding': 'identity' })).headers).to.not.have.property('content-encoding');
  });

  it('serves no other file, for any path', async () => {
    const ways = [
      '../secret.ts',
      '..%2fsecret.ts',
      '%2e%2e/secret.ts',
      '..\\secret.ts',
      'parts/../../secret.ts',
      '/etc/passwd',
      '//etc/passwd',
      'main.ts%00.css',
      'tsconfig.json',
      'types.d.ts',
      'parts',
      'parts/',
      '',
      'constructor',
      '__proto__',
      'lib/../main.ts',
    ];
    for (const way of ways) expect((await get(way)).status, way).to.equal(404);
  });

  it('is the same for everybody, and allows only its own files', async () => {
    const world = await startConsole();
    const browser = world.browser();
    await browser.press(await world.link());
    const [mine, theirs] = [
      await browser.ask('GET', '/console/refused?q=x'),
      await world.browser().ask('GET', '/console/refused/1'),
    ];
    expect(mine.text).to.equal(theirs.text);
    const policy = String(theirs.headers['content-security-policy']);
    expect(policy).to.match(/^default-src 'none'; script-src 'self' 'sha256-[\w+/]+=*'; style-src 'self'; /);
    expect(policy).to.contain("require-trusted-types-for 'script'; trusted-types 'none'");
    expect(policy).to.not.match(/unsafe|\*|http|data:|blob:/);
    await world.stop();
  });

  it('serves every file of src/console/web, each module as it is written', async function () {
    this.timeout(60_000);
    const files = globSync('src/console/web/**/*.{ts,css,svg}').filter((file) => !file.endsWith('.d.ts'));
    const [light, heavy] = [await tempDir(), await tempDir()];
    const world = await startConsole();
    for (const [n, file] of files.entries()) {
      const { status, text } = await servedBy(world, file.slice('src/console/web/'.length));
      expect(status, file).to.equal(200);
      if (!file.endsWith('.ts')) continue;
      expect(text, 'it names a file of the server').to.not.match(/^(?:import|export)\b.*'(?:\.\.\/)+(?:api|host)\//m);
      const written = stripTypeScriptTypes(readFileSync(file, 'utf8'));
      expect(text.split('\n').length, file).to.equal(written.split('\n').length);
      await writeFile(join(light, `${n}.js`), text);
      await writeFile(join(heavy, `${n}.js`), written);
    }
    await world.stop();
    expect(rewritten(light)).to.deep.equal(rewritten(heavy));
  });

  it('keeps the contents of literals: blanks of a template, and text that resembles a comment', async () => {
    const { text: served } = await get('parts/hard.ts');
    const run = (code: string) => import(`data:text/javascript,${encodeURIComponent(code)}`);
    const [light, heavy] = [await run(served), await run(stripTypeScriptTypes(HARD))];
    expect(light.all).to.deep.equal(heavy.all);
    expect(served).to.not.match(/^ +const (?:quick|inner)|gone/m);
  });

  it('serves receiver code as complete programs in each language', async function () {
    this.timeout(60_000);
    const world = await startConsole();
    const { text } = await servedBy(world, 'receivers.ts');
    await world.stop();
    const { RECEIVERS: served } = await import(`data:text/javascript,${encodeURIComponent(text)}`);
    expect(served).to.deep.equal(RECEIVERS);
    const dir = await tempDir();
    for (const { id, code } of RECEIVERS) {
      const { file, check } = CHECKS[id];
      await writeFile(join(dir, file), code);
      const { error, status, stderr } = spawnSync(check[0], [...check.slice(1), file], { cwd: dir, encoding: 'utf8' });
      if (error) console.log(`        ${id} is not checked: ${check[0]} is missing`);
      else expect([status, stderr], id).to.deep.equal([0, '']);
    }
  });
});
