import { globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect } from 'chai';

/**
 * Lower numbers may not know of higher ones; folders with the same number may not know of one another. Any other folder
 * is a road, and has its `road.ts`.
 */
const LAYERS: Readonly<Record<string, number>> = {
  base: 0,
  mail: 1,
  store: 2,
  dns: 2,
  queue: 3,
  certificates: 3,
  journal: 3.5,
  events: 4,
  inbound: 5,
  scan: 5,
  smtp: 7,
  api: 7,
  console: 7.2,
  tasks: 7,
  'settings.ts': 7.5,
  'config.ts': 8,
  composition: 9,
  examination: 9.5,
  'daemon.ts': 10,
  cli: 11,
  'main.ts': 12,
};

/** Packages that only these files may import: each behind one door, so that it can be exchanged there. */
const FENCES: Readonly<Record<string, RegExp>> = {
  'prom-client': /^base\/prometheus\.ts$/,
  mailparser: /^cli\/listen\/forward\.ts$/,
  koa: /^(api|console)\//,
  '@koa/router': /^(api|console)\//,
  'smtp-server': /^(smtp\/connection|cli\/demo\/services)\.ts$/,
  'iconv-lite': /^mail\/mime\/charset\.ts$/,
  mongodb: /^(store\/driver\/mongo(-client)?|cli\/demo\/database)\.ts$/,
  'node:sqlite': /^(base\/sqlite|journal\/[\w-]+|store\/driver\/embedded-thread|queue\/disk\/[\w-]+)\.ts$/,
  undici: /^(webhooks\/post\/wire|scan\/rspamd|certificates\/acme-http)\.ts$/,
  dns2: /^(dns\/|cli\/demo\/services\.ts$)/,
  mailauth: /^inbound\/verdicts\/(authenticate|signatures)\.ts$/,
  'node-cron': /^tasks\/scheduler\.ts$/,
  nodemailer: /^(console\/test-message|cli\/demo\/services|sending\/(notices|transport\/session|compose\/draft))\.ts$/,
  'css-select': /^mail\/compose\/inline-css\.ts$/,
  'css-what': /^mail\/style-sheet\.ts$/,
  htmlparser2: /^mail\/(html-edit|merge\/regions|links|compose\/(plain-text|inline-css))\.ts$/,
  yazl: /^tasks\/exports\/folder\.ts$/,
  handlebars: /^mail\/merge\/handlebars\/call\.ts$/,
  preact: /^console\/web\/(main|h|load|parts\/[\w-]+|screens\/[\w-]+)\.ts$/,
  uplot: /^console\/web\/parts\/plot\.ts$/,
  '@preact/signals': /^console\/web\//,
  'csv-stringify': /^tasks\/exports\/contents\.ts$/,
};

const files = globSync('src/**/*.ts').map((path) => path.slice('src/'.length));
const importsOf = (file: string) =>
  [...readFileSync(join('src', file), 'utf8').matchAll(/(?:from|import\() ?'([^']+)'|^import '([^']+)'/gm)].map(
    (found) => found[1] ?? found[2] ?? '',
  );
/** What a file imports, but for whole imports of types, which are gone when it runs. */
const withoutTypes = (file: string) => {
  const source = readFileSync(join('src', file), 'utf8').replaceAll(/^import type [^;]*;$/gm, '');
  return [...source.matchAll(/(?:from|import\() ?'([^']+)'|^import '([^']+)'/gm)].map(
    ([, one, other]) => one ?? other ?? '',
  );
};
/** What a file loads with itself: neither types, nor what it imports when it is needed. */
const loadedBy = (file: string) =>
  [...readFileSync(join('src', file), 'utf8').matchAll(/^(?:import|export)(?! type)\b[^'";()]*'(\.[^']+)'/gm)].map(
    ([, name = '']) => normalize(join(dirname(file), name)),
  );
function allLoadedBy(file: string, known = new Set<string>()): ReadonlySet<string> {
  for (const one of loadedBy(file)) if (!known.has(one)) allLoadedBy(one, known.add(one));
  return known;
}
/** The first circle of files that load each other; empty if there is none. */
function circleOfLoads(): readonly string[] {
  const done = new Set<string>();
  function from(file: string, path: readonly string[]): readonly string[] {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return [];
    for (const one of loadedBy(file)) {
      const circle = from(one, [...path, file]);
      if (circle.length > 0) return circle;
    }
    done.add(file);
    return [];
  }
  for (const file of files) {
    const circle = from(file, []);
    if (circle.length > 0) return circle;
  }
  return [];
}
const ROADS = 6;
const roads = new Set(globSync('src/*/road.ts').map((path) => path.split('/')[1]));
const layerOf = (file: string) => {
  const [folder = ''] = file.split('/');
  return LAYERS[folder] ?? (roads.has(folder) ? ROADS : Number.NaN);
};

describe('the sources', () => {
  it('import only from the own folder and from lower layers', () => {
    const wrong = files.flatMap((file) =>
      importsOf(file)
        .filter((name) => name.startsWith('.'))
        .flatMap((name) => {
          const target = normalize(join(dirname(file), name));
          const same = target.split('/')[0] === file.split('/')[0];
          return same || layerOf(target) < layerOf(file) ? [] : [`${file} imports ${target}`];
        }),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('import each package in one place', () => {
    const wrong = files.flatMap((file) =>
      importsOf(file).flatMap((name) => {
        const fence = Object.entries(FENCES).find(
          ([packageName]) => name === packageName || name.startsWith(`${packageName}/`),
        );
        return fence && !fence[1].test(file) ? [`${file} imports ${name}`] : [];
      }),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('load large modules only where they are used: the daemon, the doctor, the MongoDB driver, DKIM verification, the mail composer', () => {
    const commands = files.filter((file) => /^cli\/[\w-]+\.ts$/.test(file));
    for (const [program, large] of [
      ...['main.ts', ...commands].flatMap((file) => [
        [file, 'daemon.ts'] as const,
        [file, 'examination/examine.ts'] as const,
        [file, 'inbound/verdicts/authenticate.ts'] as const,
      ]),
      ['main.ts', 'config.ts'],
      ['cli/open.ts', 'queue/spool.ts'],
      ['cli/open.ts', 'composition/storage.ts'],
      ['cli/open.ts', 'api/hosts/host-deliveries.ts'],
      ['cli/open.ts', 'dns/resolver.ts'],
      ['daemon.ts', 'store/driver/mongo.ts'],
      ['daemon.ts', 'examination/examine.ts'],
      ['daemon.ts', 'inbound/verdicts/authenticate.ts'],
      ['composition/render-thread.ts', 'sending/compose/compose.ts'],
    ] as const) {
      expect(files, large).to.include(large);
      expect([...allLoadedBy(program)], program).to.not.include(large);
    }
    expect([...allLoadedBy('cli/queue.ts')]).to.include.members(['api/hosts/host-deliveries.ts', 'settings.ts']);
  });

  it('have no circular imports', () => {
    expect(circleOfLoads()).to.deep.equal([]);
  });

  it('use the process only in programs and cli/', () => {
    const programs = ['main.ts', 'smtp/threads/hand-back-socket.ts'];
    const wrong = files.filter(
      (file) =>
        !programs.includes(file) &&
        !file.startsWith('cli/') &&
        /\bprocess\.(?!versions)/.test(
          readFileSync(join('src', file), 'utf8').replaceAll(/^\s*(\/\/|\*|\/\*).*$/gm, ''),
        ),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('do not import the page of the console, except for types of the server', () => {
    const page = 'console/web/';
    const wrong = files.flatMap((file) =>
      [...(file.startsWith(page) ? withoutTypes(file) : importsOf(file))]
        .filter((name) => name.startsWith('.'))
        .map((name) => normalize(join(dirname(file), name)))
        .filter((target) => file.startsWith(page) !== target.startsWith(page))
        .map((target) => `${file} imports ${target}`),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('have no way to write HTML as text into the page of the console', () => {
    const wrong = files.filter(
      (file) =>
        file.startsWith('console/web/') &&
        /innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\b|new Function/.test(
          readFileSync(join('src', file), 'utf8'),
        ),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('declare every error that an operation raises', () => {
    const wrong = files.filter(
      (file) => file.startsWith('api/operations/') && importsOf(file).some((name) => name.endsWith('/errors.ts')),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('have no file above 450 lines', () => {
    const long = files.filter((file) => readFileSync(join('src', file), 'utf8').split('\n').length > 450);
    expect(long).to.deep.equal([]);
  });
});
