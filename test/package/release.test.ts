import { globSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { release } from '../support/package/release.ts';
import { has, must, run } from '../support/package/run.ts';
import { diskDir } from '../support/temp.ts';

/** The processors that programs for Linux name in their header (e_machine of ELF). */
const MACHINES = { 62: 'amd64', 183: 'arm64' } as const;

const BOM = z.object({
  bomFormat: z.literal('CycloneDX'),
  metadata: z.object({ component: z.object({ name: z.string(), version: z.string() }) }),
  components: z.array(
    z.object({
      name: z.string(),
      version: z.string(),
      cpe: z.string().optional(),
      hashes: z.array(z.object({ alg: z.literal('SHA-512'), content: z.string().length(128) })).length(1),
      licenses: z.array(z.object({ license: z.object({ id: z.string() }) }).or(z.object({ expression: z.string() }))),
    }),
  ),
});

/** The processor that a file is a program for; undefined if it is none. */
function machineOf(file: string): string | undefined {
  const head = readFileSync(file).subarray(0, 20);
  if (head.subarray(0, 4).toString('latin1') !== '\x7fELF') return undefined;
  const code = head.readUInt16LE(18);
  return Object.entries(MACHINES).find(([number]) => Number(number) === code)?.[1] ?? `processor ${code}`;
}

describe('a release', function () {
  this.timeout(900_000);
  let built: Awaited<ReturnType<typeof release>>;
  /** The two packages, unpacked. */
  const unpacked = { own: '', foreign: '' };
  before(async function () {
    if (!(await has('dpkg-deb'))) return this.skip();
    built = await release();
    const dir = await diskDir();
    for (const [kind, deb] of [['own', built.deb] as const, ['foreign', built.foreign] as const]) {
      unpacked[kind] = join(dir, kind);
      await mkdir(unpacked[kind]);
      await must('dpkg-deb', ['-R', deb, unpacked[kind]]);
    }
  });

  const modules = (kind: 'own' | 'foreign') => join(unpacked[kind], 'usr/lib/postern/node_modules');
  const architecture = async (deb: string) => (await must('dpkg-deb', ['-f', deb, 'Architecture'])).trim();

  it('has checksums of all its files, which sha256sum accepts', async () => {
    const { code, out } = await run('sha256sum', ['--strict', '-c', 'SHA256SUMS'], { cwd: built.files });
    expect(code, out).to.equal(0);
    const files = readdirSync(built.files).filter((name) => name !== 'SHA256SUMS');
    expect(out.trim().split('\n').sort()).to.deep.equal(files.map((name) => `${name}: OK`).sort());
    expect(files).to.have.length(4);
  });

  it('has a package for each architecture, whose programs are all for that one', async () => {
    const found: Record<string, string[]> = {};
    for (const [kind, deb] of [['own', built.deb] as const, ['foreign', built.foreign] as const]) {
      const machines = readdirSync(unpacked[kind], { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => machineOf(join(entry.parentPath, entry.name)))
        .filter((machine) => machine !== undefined);
      found[await architecture(deb)] = machines;
    }
    expect(found).to.deep.equal({ amd64: ['amd64'], arm64: ['arm64'] });
  });

  it('has packages that differ in nothing but the runtime', async () => {
    const list = async (deb: string) =>
      (await must('dpkg-deb', ['-c', deb]))
        .replaceAll(/node-linux-(?:x64|arm64)/g, 'RUNTIME')
        .split('\n')
        .map((line) => line.replace(/^(\S+ \S+) +\d+ /, '$1 '));
    expect(await list(built.foreign)).to.deep.equal(await list(built.deb));
    const sums = (kind: 'own' | 'foreign') =>
      readFileSync(join(unpacked[kind], 'DEBIAN/md5sums'), 'utf8')
        .split('\n')
        .filter((line) => !/node-linux-|\/doc\/postern\/copyright$/.test(line));
    expect(sums('foreign')).to.deep.equal(sums('own'));
  });

  it('says that it did not run the package for the other architecture, where this machine cannot', async function () {
    const node = globSync('node-linux-*/bin/node', { cwd: modules('foreign') })[0] ?? 'none';
    if ((await run(join(modules('foreign'), node), ['--version'])).code === 0) return this.skip();
    expect(built.said).to.contain('was not tested: this machine cannot run it');
  });

  it('has a bill of materials with every package inside, its licence, and the Node that it runs on', () => {
    const [file = 'none'] = globSync('*.cdx.json', { cwd: built.files });
    const bom = BOM.parse(JSON.parse(readFileSync(join(built.files, file), 'utf8')));
    expect(bom.metadata.component.name).to.equal('postern');
    const packed = (kind: 'own' | 'foreign') =>
      globSync('**/package.json', { cwd: modules(kind) })
        .filter((path) => /(?:^|\/node_modules\/)(?:@[^/]+\/)?[^/]+\/package\.json$/.test(path))
        .map((path) =>
          z
            .object({ name: z.string(), version: z.string() })
            .parse(JSON.parse(readFileSync(join(modules(kind), path), 'utf8'))),
        )
        .map(({ name, version }) => `${name}@${version}`);
    const inside = [...new Set([...packed('own'), ...packed('foreign')])].sort();
    expect(bom.components.map(({ name, version }) => `${name}@${version}`).sort()).to.deep.equal(inside);
    expect(bom.components.filter(({ licenses }) => licenses.length === 0)).to.deep.equal([]);
    const node = process.versions.node;
    expect(bom.components.filter(({ cpe }) => cpe !== undefined).map(({ name, cpe }) => [name, cpe])).to.deep.equal(
      ['arm64', 'x64'].map((arch) => [`node-linux-${arch}`, `cpe:2.3:a:nodejs:node.js:${node}:*:*:*:*:*:*:*`]),
    );
  });

  it('passes lintian without errors for the other architecture', async function () {
    // The packages of npm, which take lintian a minute, are the same as those for this machine.
    if (process.env['PACKAGE'] === 'small' || !(await has('lintian'))) return this.skip();
    const { out, err } = await run('lintian', ['--allow-root', built.foreign]);
    expect((out + err).split('\n').filter((line) => line.startsWith('E:'))).to.deep.equal([]);
  });

  it('is not built into a folder with other files, whose sums would be among its own', async () => {
    const { code, err } = await run(join(built.checkout, 'scripts/release.sh'), ['--out', built.files]);
    expect(code).to.equal(64);
    expect(err).to.contain('is not empty');
  });

  for (const [script, args] of [
    ['deb.sh', ['--arch', 'riscv64']],
    ['deb.sh', ['--arch']],
    ['release.sh', ['--out']],
    ['image.sh', []],
    ['image.sh', ['missing.deb']],
    ['image.sh', ['--frobnicate']],
  ] as const)
    it(`rejects ${[script, ...args].join(' ')} with the usage and exit code 64`, async () => {
      const { code, err } = await run(join(built.checkout, 'scripts', script), args);
      expect(code).to.equal(64);
      expect(err).to.contain('Usage:');
    });
});
