import { expect } from 'chai';
import type { ApiWorld } from '../../support/api.ts';
import { createStage, type Stage, startStages } from '../../support/contract/stage.ts';
import { TABLE } from '../../support/contract/table.ts';
import type { Entry, Parameter } from '../../support/contract/types.ts';
import { HOSTILE, STORED } from '../../support/contract/values.ts';
import { drivers } from '../../support/database.ts';

// Every documented parameter, given what it was not made for: whatever comes of it, it is no fault of ours.

for (const driver of drivers) {
  describe(`hostile values in every documented parameter, ${driver.name}`, function () {
    this.timeout(60_000);
    let world: ApiWorld;
    before(async () => {
      world = await startStages(driver);
    });
    after(() => world?.stop());

    for (const { name, entries } of TABLE)
      for (const entry of entries.filter(({ params }) => params.length > 0)) {
        it(`of ${entry.path} in ${name}`, async () => {
          const stage = await createStage(world);
          for (const parameter of entry.params)
            await attack(stage, entry, parameter, driver.kind === 'embedded' ? HOSTILE : STORED);
          expect(world.log.of('api.fault').map(({ fields }) => String(fields.error))).to.deep.equal([]);
          expect(Object.hasOwn(Object.prototype, 'polluted')).to.equal(false);
        });
      }
  });
}

/** All values at once: what breaks may break by the company it is in. */
async function attack(
  stage: Stage,
  { path, given }: Entry,
  { name, type }: Parameter,
  hostile: readonly unknown[],
): Promise<void> {
  const good = await given(stage);
  const values = [
    ...hostile,
    ...(type.startsWith('array') ? hostile.map((value) => [value]) : []),
    ...(type === 'array of struct' ? hostile.map((value) => [{ name: value, content: value }]) : []),
  ];
  await Promise.all(
    values.map(async (value) => {
      const { status, body } = await stage.call(path, { ...good, [name]: value });
      const about = `${path} ${name} ${JSON.stringify(value).slice(0, 100)} answers ${status} ${JSON.stringify(body).slice(0, 200)}`;
      expect(status, about).to.be.below(500);
      if (typeof value === 'object' && type !== 'array of string' && type !== 'array of struct')
        expect(body, about).to.include({ name: 'ValidationError', code: -2 });
      if (status !== 200)
        expect(body, about).to.include({ status: 'error' }).and.to.have.keys('status', 'code', 'name', 'message');
    }),
  );
}
