import type { EntityDictionary, EntityName } from "@mikro-orm/postgresql";
import type { EntityManager } from "./orm.ts";

/**
 * Makes records to be shown from raw rows of an entity's table. No entity manager keeps them, which is most of what
 * `em.map` costs.
 */
export function recordReader<Entity extends object>(
  em: EntityManager,
  entity: EntityName<Entity>,
): (row: object) => Readonly<Entity> {
  const meta = em.getMetadata().get(entity);
  const driver = em.getDriver();
  const converted = meta.props.flatMap(({ name, customType }) => (customType ? [{ name, customType }] : []));
  return (row) => {
    // The columns of a table are those of its entity; MikroORM's type of a raw row does not know Kysely's.
    const record = driver.mapResult(row as EntityDictionary<Entity>, meta) as Entity;
    for (const { name, customType } of converted) {
      record[name] = customType.convertToJSValue(record[name], driver.getPlatform()) as Entity[typeof name];
    }
    return record;
  };
}
