import { router } from "../../rest/route.ts";

export const contentRouter = router({});
