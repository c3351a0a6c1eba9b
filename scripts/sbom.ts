import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { z } from 'zod';

// Completes the bill of materials that `npm sbom` writes: the same tree gives the same bytes, the runtime is named as
// the lists of vulnerabilities name it, and Postern is an application.

const COMPONENT = z.looseObject({ name: z.string(), version: z.string() });
const BOM = z.looseObject({
  metadata: z.looseObject({ component: COMPONENT }),
  components: z.array(COMPONENT),
});

const [epoch] = process.argv.slice(2);
if (epoch === undefined) {
  process.stderr.write('Usage: npm sbom --sbom-format cyclonedx … | node scripts/sbom.ts SECONDS\n');
  process.exit(64);
}
const bom = BOM.parse(JSON.parse(readFileSync(0, 'utf8')));
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
