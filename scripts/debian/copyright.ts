import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';

// Prints the copyright file of the Debian package: our licence, and for each package inside its name, licence and text
// as it came.

const MANIFEST = z.object({
  name: z.string(),
  version: z.string(),
  license: z.union([z.string(), z.object({ type: z.string() })]).optional(),
});
type Manifest = z.infer<typeof MANIFEST>;

/** Text as a field of a Debian control file takes it: every line indented, no line empty. */
const field = (text: string): string =>
  text
    .trim()
    .split('\n')
    .map((line) => ` ${line.trim() === '' ? '.' : line.trimEnd()}`)
    .join('\n');

/** Debian has this text once; notices and copyrights around it stay. */
const APACHE =
  /^ *Apache License\s+Version 2\.0, January 2004[\s\S]*?END OF TERMS AND CONDITIONS(?:\s+APPENDIX[\s\S]*?third-party archives\.)?/gm;
const ELSEWHERE = 'Apache License 2.0: on Debian systems the text is in /usr/share/common-licenses/Apache-2.0.';

function licenceText(folder: string): string {
  const [file] = globSync('{LICEN[CS]E,licen[cs]e,COPYING,License}*', { cwd: folder }).sort();
  return file === undefined
    ? 'It came without a text of its licence.'
    : readFileSync(join(folder, file), 'utf8').replaceAll(APACHE, ELSEWHERE);
}

const licenceName = ({ license }: Manifest): string =>
  (typeof license === 'string' ? license : (license?.type ?? 'unknown')).replaceAll(/[()]/g, '').replaceAll(' ', '-');

function paragraph(modules: string, path: string): string {
  const folder = join(modules, path, '..');
  const manifest = MANIFEST.parse(JSON.parse(readFileSync(join(modules, path), 'utf8')));
  return [
    `Files: usr/lib/postern/node_modules/${join(path, '..')}/*`,
    `Copyright: the authors of ${manifest.name} ${manifest.version}, as the text says`,
    `License: ${licenceName(manifest)}-${manifest.name.replaceAll(/[^a-z0-9.-]/gi, '-')}`,
    field(licenceText(folder)),
  ].join('\n');
}

/** Folders of packages, also of those inside others; what else has a package.json is a part of one. */
const isPackage = (path: string): boolean =>
  /(?:^|\/node_modules\/)(?:@[^/]+\/)?[^/]+\/package\.json$/.test(path) && !/^\.bin\//.test(path);

const [tree, modules] = process.argv.slice(2);
if (tree === undefined || modules === undefined) {
  process.stderr.write('Usage: node scripts/debian/copyright.ts TREE NODE_MODULES\n');
  process.exit(64);
}
const packages = globSync('**/package.json', { cwd: modules }).filter(isPackage).sort();
process.stdout.write(
  [
    'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: postern',
    `Files: *\nCopyright: the authors of Postern\nLicense: MIT\n${field(readFileSync(join(tree, 'LICENSE'), 'utf8'))}`,
    ...packages.map((path) => paragraph(modules, path)),
    '',
  ]
    .join('\n\n')
    .trimEnd() + '\n',
);
