import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';

// Prints the bill of materials of a release (CycloneDX), by `npm sbom`. The same tree gives the same bytes, the runtime
// is named as the lists of vulnerabilities name it, and Postern is an application.

const LOCK = z.looseObject({
  packages: z.record(z.string(), z.looseObject({ dev: z.boolean().optional(), devOptional: z.boolean().optional() })),
});
const COMPONENT = z.looseObject({ name: z.string(), version: z.string() });
const BOM = z.looseObject({ metadata: z.looseObject({ component: COMPONENT }), components: z.array(COMPONENT) });

/**
 * What npm says of the lock file, which has both architectures, without the packages of developers. Not by `--omit dev`:
 * npm 11 then leaves out whatever these need, even if Postern needs it too.
 */
function listed(tree: string): z.infer<typeof BOM> {
  const {
    devDependencies: _,
    overrides: _overrides,
    ...manifest
  } = readJson(join(tree, 'package.json'), z.looseObject({}));
  const lock = readJson(join(tree, 'package-lock.json'), LOCK);
  const packages = Object.entries(lock.packages)
    .filter(([, { dev, devOptional }]) => dev !== true && devOptional !== true)
    .map(([path, entry]) => [path, path === '' ? { ...entry, devDependencies: undefined } : entry] as const);
  const folder = mkdtempSync(join(tmpdir(), 'postern-sbom-'));
  try {
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
    writeFileSync(
      join(folder, 'package-lock.json'),
      JSON.stringify({ ...lock, packages: Object.fromEntries(packages) }),
    );
    const words = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only'];
    return BOM.parse(JSON.parse(execFileSync('npm', words, { cwd: folder, encoding: 'utf8' })));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function readJson<T>(file: string, schema: z.ZodType<T>): T {
  return schema.parse(JSON.parse(readFileSync(file, 'utf8')));
}

const [tree, epoch] = process.argv.slice(2);
if (tree === undefined || epoch === undefined) {
  process.stderr.write('Usage: node scripts/sbom.ts TREE SECONDS_SINCE_1970\n');
  process.exit(64);
}
const bom = listed(tree);
const components = bom.components.map((component) =>
  component.name.startsWith('node-linux-')
    ? { ...component, cpe: `cpe:2.3:a:nodejs:node.js:${component.version}:*:*:*:*:*:*:*` }
    : component,
);
const metadata = {
  ...bom.metadata,
  timestamp: new Date(Number(epoch) * 1000).toISOString(),
  component: { ...bom.metadata.component, type: 'application', name: 'postern' },
};
const digest = createHash('sha256').update(JSON.stringify({ metadata, components })).digest('hex');
// A UUID of version 8 (RFC 9562): made from a digest.
const uuid = digest.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-8$3-8$4-$5');
process.stdout.write(
  `${JSON.stringify({ ...bom, serialNumber: `urn:uuid:${uuid}`, metadata, components }, null, 2)}\n`,
);
